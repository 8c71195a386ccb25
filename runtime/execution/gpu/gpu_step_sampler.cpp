#include "runtime/execution/gpu/gpu_step_sampler.hpp"

#include "runtime/support/error.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace troupe {

namespace {

namespace cuda = kernels::cuda;

constexpr std::size_t max_in_flight = 2;          // samples
constexpr std::size_t usual_list_bytes = 8 << 10; // per sequence: about a thousand tokens to penalise, bias or mask

} // namespace

std::size_t gpu_step_sampler::memory(const step_sizes& sizes, int vocab) {
  const auto rows = static_cast<std::size_t>(sizes.logit_rows()), ids = static_cast<std::size_t>(vocab),
             counted = std::min(ids, static_cast<std::size_t>(sizes.context));
  const auto lists = std::max(usual_list_bytes, ids * sizeof(cuda::logit_bias) + counted * sizeof(cuda::token_count));
  const auto inputs = sizeof(cuda::sampling_row) + lists;
  return rows * (sizeof(std::int32_t) + sizeof(cuda::sampled_row) + ids * sizeof(float)) +
    cuda::device_scratch::reserved(rows * inputs);
}

gpu_step_sampler::gpu_step_sampler(std::vector<token_id> eos_ids, int vocab, int max_sequences,
                                   std::function<void()> sampled, host_settings host)
  : eos_ids_(std::move(eos_ids)),
    vocab_(static_cast<std::size_t>(vocab)),
    max_sequences_(static_cast<std::size_t>(max_sequences)),
    max_rows_(max_sequences_ + extra_logit_rows),
    sampled_(std::move(sampled)),
    slots_(std::static_pointer_cast<std::int32_t>(cuda::allocate(max_sequences_ * sizeof(std::int32_t)))),
    results_(cuda::allocate(max_rows_ * sizeof(cuda::sampled_row))),
    edited_(cuda::allocate(max_rows_ * vocab_ * sizeof(float))),
    judge_(eos_ids_, std::move(host)) {
  std::erase_if(eos_ids_, [this](token_id id) { return id < 0 || static_cast<std::size_t>(id) >= vocab_; });
  const auto bytes = max_rows_ * (sizeof(cuda::sampling_row) + usual_list_bytes);
  inputs_.reserve(bytes);
  for (std::size_t i = 0; i < max_in_flight; ++i) {
    pinned_inputs_.add(bytes);
    pinned_results_.add(max_rows_ * sizeof(cuda::sampled_row));
  }
}

gpu_step_sampler::~gpu_step_sampler() {
  try {
    stream_.synchronise();                 // work in flight uses memory that is freed now
  } catch (const kernels::device_error&) { // the device has failed, so nothing is in flight
  }
}

bool gpu_step_sampler::lacks_masks(const step_plan& plan) {
  return !in_flight_.empty() && in_flight_.front().plan.get() == &plan && judge_.lacks_masks(plan);
}

step_tokens gpu_step_sampler::sample(const std::shared_ptr<const step_plan>& plan, const step_output& logits) {
  prepare(*plan);
  sample_in_flight d;
  d.plan = plan;
  d.logits = logits.logits;
  d.hidden = logits.hidden;
  d.width = logits.width;
  d.done = std::make_shared<cuda::event>();
  sampling_inputs inputs(vocab_);
  if (plan->samples.size() > max_sequences_)
    throw failure(errc::internal, "a step samples more tokens than there are sequences");
  for (const auto& demand : plan->samples) {
    if (demand.constrained)
      continue; // by collect
    if (auto& start = demand.start) {
      const auto params = sampling_of(start->asked);
      const auto& prompt = start->asked->prompt;
      sequence s{sequence_state(params, eos_ids_, prompt, start->emitted, demand.sequence.index)};
      if (params->extended())
        s.on_host = std::make_shared<sequence_sampler>(params, eos_ids_, prompt, start->emitted, demand.sequence.index,
                                                       start->mirostat_mu);
      sequences_.insert_or_assign(demand.sequence, std::move(s));
    }
    const auto found = sequences_.find(demand.sequence);
    if (found == sequences_.end())
      continue; // it has ended, so this token is not needed
    if (found->second.on_host) {
      if (!d.host)
        d.host = std::make_shared<host_draws>(host_draws{plan, {}, {}});
      d.host->draws.push_back({&demand, found->second.on_host, 0, {}, false});
      continue;
    }
    inputs.add(demand, *plan, found->second.state, found->second.in_flight++);
    d.demands.push_back(&demand);
  }
  cuda::wait_for(stream_, dynamic_cast<const cuda::event&>(*logits.ready));
  auto tokens = std::make_shared<cuda::event>();
  if (inputs.rows() > max_rows_)
    throw failure(errc::internal, "a step samples more tokens than a sampler has memory for");
  if (inputs.rows() > 0)
    run(inputs, d, logits.vocab);
  if (d.host)
    draw_on_host(logits, d);
  tokens->record(stream_);
  if (!d.demands.empty()) {
    const auto bytes = inputs.rows() * sizeof(cuda::sampled_row);
    d.results = pinned_results_.lend(bytes);
    cuda::copy_to_host(stream_, d.results.get(), results_.get(), bytes);
  }
  if (host_judge::concerns(*plan) || std::ranges::any_of(plan->samples, &sample_demand::constrained))
    fetch_logits(*plan, logits, d);
  cuda::call_on_host(stream_, sampled_);
  d.done->record(stream_);
  in_flight_.push_back(std::move(d));
  return {plan->step, nullptr, slots_, tokens};
}

void gpu_step_sampler::fetch_logits(const step_plan& plan, const step_output& logits, sample_in_flight& d) {
  d.judged_rows = host_judge::rows(plan);
  for (const auto& demand : plan.samples)
    for (std::int32_t i = 0; demand.constrained && i <= demand.guesses; ++i)
      d.judged_rows.push_back(demand.logit_row + i);
  d.judged_logits = pinned_logits_.lend(std::max<std::size_t>(d.judged_rows.size() * vocab_ * sizeof(float), 1));
  auto* to = static_cast<float*>(d.judged_logits.get());
  for (const auto row : d.judged_rows) {
    cuda::copy_to_host(stream_, to, logits.logits.get() + static_cast<std::size_t>(row) * logits.vocab,
                       vocab_ * sizeof(float));
    to += vocab_;
  }
}

// Copies the logits, has the driver's thread sample from them, and brings the tokens to the device. What the callback
// holds frees no memory of the device; that is kept by `d` until it is collected.
void gpu_step_sampler::draw_on_host(const step_output& logits, sample_in_flight& d) {
  auto& draws = d.host->draws;
  std::size_t rows = 0;
  for (auto& draw : draws) {
    draw.row = rows;
    rows += static_cast<std::size_t>(draw.demand->guesses) + 1;
  }
  d.host_logits = pinned_logits_.lend(rows * vocab_ * sizeof(float));
  d.host_tokens = pinned_tokens_.lend(draws.size() * sizeof(std::int32_t));
  auto* values = static_cast<float*>(d.host_logits.get());
  auto* tokens = static_cast<std::int32_t*>(d.host_tokens.get());
  for (const auto& draw : draws) {
    const auto from = static_cast<std::size_t>(draw.demand->logit_row);
    for (std::size_t i = 0; i <= static_cast<std::size_t>(draw.demand->guesses); ++i)
      cuda::copy_to_host(stream_, values + (draw.row + i) * vocab_, logits.logits.get() + (from + i) * logits.vocab,
                         vocab_ * sizeof(float));
  }
  cuda::call_on_host(stream_, [work = d.host, values, tokens, vocab = vocab_] {
    for (std::size_t n = 0; n < work->draws.size(); ++n) {
      auto& draw = work->draws[n];
      const auto row = [&](std::int32_t i) {
        return std::span<const float>(values + (draw.row + static_cast<std::size_t>(i)) * vocab, vocab);
      };
      try {
        draw.goes_on = sample_on_host(*work->plan, *draw.demand, *draw.sampler, row, work->scratch, draw.result);
      } catch (const failure& f) {
        draw.result.failed.push_back({draw.demand->sequence, f.what_failed()});
      } catch (const std::exception& e) { // of a driver's callback nothing may escape
        draw.result.failed.push_back({draw.demand->sequence, {errc::internal, e.what(), {}}});
      }
      tokens[n] = draw.result.sampled.empty() ? 0 : draw.result.sampled.back().token.id;
    }
  });
  for (std::size_t n = 0; n < draws.size(); ++n)
    cuda::copy_to_device(stream_, slots_.get() + draws[n].demand->slot, tokens + n, sizeof(std::int32_t));
}

void gpu_step_sampler::collect_host_draws(sample_in_flight& d, step_result& result) {
  if (!std::exchange(told_of_host_, true))
    result.news = "some requests use samplers that the GPU lacks: their tokens are chosen on the host";
  for (auto& draw : d.host->draws) {
    const auto found = sequences_.find(draw.demand->sequence);
    if (found == sequences_.end())
      continue; // it ended with an earlier token
    std::ranges::move(draw.result.sampled, std::back_inserter(result.sampled));
    std::ranges::move(draw.result.judged, std::back_inserter(result.judged));
    std::ranges::move(draw.result.failed, std::back_inserter(result.failed));
    if (!draw.goes_on)
      sequences_.erase(found);
  }
}

void gpu_step_sampler::run(const sampling_inputs& inputs, sample_in_flight& d, std::size_t vocab) {
  const auto bytes = inputs.bytes();
  auto* device = inputs_.reserve<char>(bytes);
  d.inputs = pinned_inputs_.lend(bytes);
  auto* host = static_cast<char*>(d.inputs.get());
  inputs.write(host, device);
  cuda::copy_to_device(stream_, device, host, bytes);
  cuda::sampling_params p;
  p.logits = d.logits.get();
  p.stride = vocab;
  p.vocab = static_cast<std::int32_t>(vocab_);
  p.rows = reinterpret_cast<const cuda::sampling_row*>(device);
  p.out = static_cast<cuda::sampled_row*>(results_.get());
  p.edited = static_cast<float*>(edited_.get());
  p.slot_tokens = slots_.get();
  cuda::sample(stream_, p, inputs.rows());
}

step_result gpu_step_sampler::collect() {
  if (in_flight_.empty())
    throw failure(errc::internal, "there is no sample to collect");
  auto d = std::move(in_flight_.front());
  in_flight_.pop_front();
  step_result result;
  result.step = d.plan->step;
  const auto* rows = static_cast<const cuda::sampled_row*>(d.results.get());
  for (const auto* demand : d.demands) {
    const auto* first = std::exchange(rows, rows + 1 + demand->guesses);
    const auto found = sequences_.find(demand->sequence);
    if (found == sequences_.end())
      continue; // it ended with an earlier token
    --found->second.in_flight;
    const auto draw = [&](std::int32_t i) {
      if (first[i].token < 0)
        throw failure(errc::internal, nothing_to_choose);
      return finish(first[i], found->second.state);
    };
    try {
      const bool goes_on = take_tokens(*d.plan, *demand, draw, result);
      for (std::int32_t i = 0; demand->guesses > 0 && i <= demand->guesses; ++i)
        result.judged.back().choices[static_cast<std::size_t>(i)] = first[i].token;
      if (!goes_on)
        sequences_.erase(found);
    } catch (const failure& f) {
      result.failed.push_back({demand->sequence, f.what_failed()});
      sequences_.erase(found);
    }
  }
  for (const auto& demand : d.plan->samples)
    if (demand.constrained)
      judge_.constrained().sample(*d.plan, demand, host_logits(d), scratch_, result);
  if (d.host)
    collect_host_draws(d, result);
  if (host_judge::concerns(*d.plan))
    judge_.judge(*d.plan, host_logits(d), scratch_, result);
  pooling_.add(*d.plan, {d.hidden.get(), d.plan->hidden_rows.size() * d.width}, result);
  for (auto id : d.plan->ended) {
    sequences_.erase(id);
    judge_.forget(id);
    pooling_.forget(id);
  }
  return result;
}

host_judge::logits_fn gpu_step_sampler::host_logits(const sample_in_flight& d) const {
  return [this, &d](std::int32_t row) {
    const auto place = std::ranges::find(d.judged_rows, row) - d.judged_rows.begin();
    return std::span(static_cast<const float*>(d.judged_logits.get()) + static_cast<std::size_t>(place) * vocab_,
                     vocab_);
  };
}

sampled_token gpu_step_sampler::finish(const cuda::sampled_row& row, sequence_state& state) const {
  sampled_token token;
  token.id = row.token;
  if (state.params().wants_logprobs()) {
    const double log_total = std::log(static_cast<double>(row.total) / 0x1p40);
    const auto logprob = [&](float logit) {
      return static_cast<float>(static_cast<double>(std::min(logit - row.largest, 0.f)) - log_total);
    };
    token.logprob = logprob(row.logit);
    for (std::int32_t i = 0; i < row.top_count; ++i)
      token.top.push_back({row.top_ids[i], logprob(row.top_logits[i])});
  }
  token.finish = state.append(token.id);
  return token;
}

void gpu_step_sampler::check() const {
  if (!in_flight_.empty())
    in_flight_.front().done->happened();
}

} // namespace troupe
