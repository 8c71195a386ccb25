#include "runtime/execution/cpu/cpu_step_sampler.hpp"

#include "kernels/cpu/thread_pool.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

namespace troupe {

namespace {

/// Appends what one demand yields.
void append(step_result& to, step_result&& from) {
  std::ranges::move(from.sampled, std::back_inserter(to.sampled));
  std::ranges::move(from.judged, std::back_inserter(to.judged));
  std::ranges::move(from.failed, std::back_inserter(to.failed));
}

/// A copy, as what a runner lends is for one step.
guesser_states states_of(const guesser_rows& demand, std::span<const float> hidden, std::size_t width) {
  const auto rows = static_cast<std::size_t>(demand.rows);
  const auto from = hidden.subspan(static_cast<std::size_t>(demand.hidden_row) * width, rows * width);
  const auto copy = std::make_shared<const std::vector<float>>(from.begin(), from.end());
  return {demand.sequence, {demand.position, demand.rows, {copy, copy->data()}, width}, demand.known};
}

constexpr std::size_t constrained_work = 6; // masks are copied besides

/// What a token of these parameters takes, times a greedy one (tests/bench/sampling_bench.cpp).
std::size_t work_of(const sampling_params& p) {
  const std::size_t chosen = p.greedy() ? 1 : p.extended() ? 16 : p.top_k > 0 ? 2 : 8;
  return chosen + (p.wants_logprobs() ? 8 : 0);
}

} // namespace

cpu_step_sampler::cpu_step_sampler(std::vector<token_id> eos_ids, host_settings settings, division divided)
  : judge_(std::move(eos_ids), std::move(settings)), divided_(std::move(divided)), scratch_(1) {}

cpu_step_sampler::~cpu_step_sampler() = default;

step_tokens cpu_step_sampler::sample(const std::shared_ptr<const step_plan>& plan, const step_output& logits) {
  const auto began = std::chrono::steady_clock::now();
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

step_result cpu_step_sampler::collect() { throw failure(errc::internal, "there is no sample to collect"); }

step_result cpu_step_sampler::sample(const step_plan& plan, std::span<const float> logits,
                                     std::span<const float> hidden, const contrast_rows* contrast) {
  step_result result;
  result.step = plan.step;
  const auto vocab = plan.logit_rows.empty() ? 0 : logits.size() / plan.logit_rows.size();
  const auto row = [&](std::int32_t i) { return logits.subspan(static_cast<std::size_t>(i) * vocab, vocab); };
  const auto judged = [&](std::int32_t i) { return judged_logits(row(i), contrast ? contrast->at(i) : other_rows()); };
  prepare(plan);
  auto draws = draws_of(plan);
  sample(plan, draws, vocab, judged);
  auto drawn = draws.begin();
  for (auto& demand : plan.samples) { // in the order of demands
    if (drawn == draws.end() || drawn->demand != &demand)
      continue; // it has ended
    if (demand.constrained) {
      judge_.constrained().sample(plan, demand, judged, scratch_.front(), result);
    } else {
      append(result, std::move(drawn->result));
      if (!drawn->goes_on)
        sequences_.erase(demand.sequence);
    }
    ++drawn;
  }
  judge_.judge(plan, row, scratch_.front(), result);
  pooling_.add(plan, hidden, result);
  for (const auto& each : plan.for_guesser)
    result.for_guesser.push_back(states_of(each, hidden, hidden.size() / plan.hidden_rows.size()));
  for (auto id : plan.ended) {
    sequences_.erase(id);
    judge_.forget(id);
    pooling_.forget(id);
  }
  return result;
}

// Draws for sequences that have not ended.
std::vector<cpu_step_sampler::draw> cpu_step_sampler::draws_of(const step_plan& plan) {
  std::vector<draw> draws;
  for (auto& demand : plan.samples) {
    if (demand.constrained) {
      draws.push_back({&demand});
      continue;
    }
    if (auto& start = demand.start)
      sequences_.insert_or_assign(demand.sequence,
                                  sequence_sampler(sampling_of(start->asked), judge_.eos_ids(), start->asked->prompt,
                                                   start->emitted, demand.sequence.index, start->mirostat_mu));
    if (auto found = sequences_.find(demand.sequence); found != sequences_.end())
      draws.push_back({&demand, &found->second});
  }
  return draws;
}

void cpu_step_sampler::sample(const step_plan& plan, std::vector<draw>& draws, std::size_t vocab,
                              const rows_fn& judged) {
  const auto one = [&](draw& d, std::size_t thread) {
    auto& scratch = scratch_[thread];
    if (!d.sequence)
      return judge_.constrained().draw_ahead(*d.demand, judged, masked_[thread], scratch);
    const auto row_of = [&](std::int32_t i) { return judged(d.demand->logit_row + i); };
    try {
      d.goes_on = sample_on_host(plan, *d.demand, *d.sequence, row_of, scratch, d.result);
    } catch (const failure& f) {
      d.result.failed.push_back({d.demand->sequence, f.what_failed()});
    }
  };
  std::size_t work = 0;
  for (const auto& d : draws)
    work += vocab * static_cast<std::size_t>(1 + d.demand->guesses) *
      (d.sequence ? work_of(d.sequence->params()) : constrained_work);
  if (divided_.threads == 1 || draws.size() < 2 || work < divided_.from) {
    for (auto& d : draws)
      if (d.sequence)
        one(d, 0);
    return;
  }
  if (!pool_) {
    pool_ = std::make_unique<kernels::thread_pool>(divided_.threads, divided_.cores);
    scratch_.resize(static_cast<std::size_t>(pool_->size()));
    masked_.resize(scratch_.size());
  }
  pool_->parallel_for(draws.size(),
                      [&](std::size_t i, int thread) { one(draws[i], static_cast<std::size_t>(thread)); });
}

} // namespace troupe
