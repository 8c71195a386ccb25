#include "runtime/execution/cpu/cpu_step_sampler.hpp"

#include <chrono>

namespace troupe {

step_tokens cpu_step_sampler::sample(const std::shared_ptr<const step_plan>& plan, const step_output& logits) {
  const auto began = std::chrono::steady_clock::now();
  how_->until = began + patience(logits.ms);
  const std::span values(logits.logits.get(), plan->logit_rows.size() * logits.vocab);
  const std::span hidden(logits.hidden.get(), plan->hidden_rows.size() * logits.width);
  auto result = std::make_shared<step_result>(sample(*plan, values, hidden, logits.contrast.get()));
  if (logits.ms > 0) { // the next step waits for these tokens, so choosing them is part of this one
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
    result->ms = logits.ms + took.count();
  }
  result->stage_ms = logits.stage_ms;
  return {plan->step, std::move(result), nullptr, nullptr};
}

void cpu_step_sampler::prepare(const step_plan& plan) {
  guided_.prepare(plan);
  judge_.prepare(plan);
}

step_result cpu_step_sampler::collect_late() {
  step_result result;
  how_->until = {};
  guided_.collect_late(scratch_, result);
  judge_.collect_late(scratch_, result);
  return result;
}

step_result cpu_step_sampler::collect() { throw failure(errc::internal, "there is no sample to collect"); }

step_result cpu_step_sampler::sample(const step_plan& plan, std::span<const float> logits,
                                     std::span<const float> hidden, const contrast_rows* contrast) {
  step_result result;
  result.step = plan.step;
  const auto vocab = plan.logit_rows.empty() ? 0 : logits.size() / plan.logit_rows.size();
  const auto row = [&](std::int32_t i) { return logits.subspan(static_cast<std::size_t>(i) * vocab, vocab); };
  const auto judged = [&](std::int32_t i) { return judged_logits(row(i), contrast ? contrast->at(i) : other_rows()); };
  prepare(plan);
  for (auto& demand : plan.samples) {
    if (demand.guided) {
      guided_.sample(plan, demand, judged, scratch_, result);
      continue;
    }
    if (auto& start = demand.start)
      sequences_.insert_or_assign(demand.sequence,
                                  sequence_sampler(start->params, how_->eos_ids, *start->prompt, start->emitted,
                                                   demand.sequence.index, start->mirostat_mu));
    auto found = sequences_.find(demand.sequence);
    if (found == sequences_.end())
      continue;
    const auto row_of = [&](std::int32_t i) { return judged(demand.logit_row + i); };
    try {
      if (!sample_on_host(plan, demand, found->second, row_of, scratch_, result))
        sequences_.erase(found);
    } catch (const failure& f) {
      result.failed.push_back({demand.sequence, f.what_failed()});
      sequences_.erase(found);
    }
  }
  judge_.judge(plan, row, scratch_, result);
  pooling_.add(plan, hidden, result);
  for (auto id : plan.ended) {
    sequences_.erase(id);
    guided_.forget(id);
    judge_.forget(id);
    pooling_.forget(id);
  }
  return result;
}

} // namespace troupe
