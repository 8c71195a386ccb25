#include "runtime/sampling/sampler.hpp"

#include "runtime/sampling/logits_processors.hpp"
#include "runtime/sampling/philox.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace troupe {

failure nothing_allowed(const sampling_params& p) {
  return failure(errc::bad_request,
                 "no token can follow: what the request allows (`allowed_token_ids`, `bad_words`, "
                 "`no_repeat_ngram_size`, `min_tokens`, its guide) leaves none",
                 !p.allowed_token_ids.empty()   ? "allowed_token_ids"
                   : p.no_repeat_ngram_size > 0 ? "no_repeat_ngram_size"
                                                : "");
}

void describe(std::span<const float> logits, std::size_t count, candidates& tokens, sampled_token& chosen) {
  tokens.reset(logits);
  const double log_total = tokens.log_total();
  const auto logprob = [&](float logit) {
    return static_cast<float>(static_cast<double>(std::min(logit - tokens.max(), 0.f)) - log_total);
  };
  chosen.logprob = logprob(logits[static_cast<std::size_t>(chosen.id)]);
  if (count == 0)
    return;
  tokens.narrow(tokens.kth_largest(std::min(count, tokens.size())));
  std::vector<std::size_t> order(tokens.size());
  std::iota(order.begin(), order.end(), 0);
  count = std::min(count, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [&](std::size_t a, std::size_t b) {
                      const auto x = tokens.logits()[a], y = tokens.logits()[b];
                      return x != y ? x > y : a < b;
                    });
  for (std::size_t i = 0; i < count; ++i)
    chosen.top.push_back({tokens.ids()[order[i]], logprob(tokens.logits()[order[i]])});
}

sequence_state::sequence_state(std::shared_ptr<const sampling_params> params, std::vector<token_id> eos_ids,
                               std::span<const token_id> prompt, std::span<const token_id> emitted, std::uint32_t index)
  : params_(std::move(params)), eos_ids_(std::move(eos_ids)), position_(prompt.size()), index_(index) {
  if (uses_counts())
    counts_.add_prompt(prompt);
  for (const auto id : emitted)
    count(id);
}

bool sequence_state::uses_counts() const {
  return params_->repetition_penalty != 1 || params_->presence_penalty != 0 || params_->frequency_penalty != 0;
}

void sequence_state::count(token_id id) {
  if (uses_counts())
    counts_.add_generated(id);
  ++position_;
  ++emitted_;
}

enum sampled_token::finish sequence_state::finish_of(token_id id) const {
  if (!params_->ignore_eos && std::ranges::find(eos_ids_, id) != eos_ids_.end())
    return sampled_token::finish::eos;
  if (params_->stop_token_ids.contains(id))
    return sampled_token::finish::stop_token;
  if (emitted_ >= static_cast<std::uint64_t>(params_->max_tokens))
    return sampled_token::finish::length;
  return sampled_token::finish::none;
}

enum sampled_token::finish sequence_state::append(token_id id) {
  count(id);
  return finish_of(id);
}

// -- sequence_sampler -------------------------------------------------------------------------------------------------

sequence_sampler::sequence_sampler(std::shared_ptr<const sampling_params> params, std::vector<token_id> eos_ids,
                                   std::span<const token_id> prompt, std::span<const token_id> emitted,
                                   std::uint32_t index, float mirostat_mu)
  : state_(std::move(params), std::move(eos_ids), prompt, emitted, index) {
  if (state_.params().extended())
    extended_.emplace(state_.shared_params(), prompt, emitted, mirostat_mu, index);
}

// The logits after all edits: unchanged, or an edited copy in `row`.
std::span<const float> sequence_sampler::edit(std::span<const float> logits, std::vector<float>& row) const {
  const auto& p = state_.params();
  const bool too_short = state_.emitted() < static_cast<std::uint64_t>(p.min_tokens);
  if (!state_.uses_counts() && !too_short && p.logit_bias.empty() && !extended_)
    return logits;
  if (logits.data() != row.data())
    row.assign(logits.begin(), logits.end());
  add_bias(row, p.logit_bias);
  if (extended_)
    extended_->add_biases(row);
  if (p.repetition_penalty != 1 && p.repetition_penalty_range > 0)
    extended_->penalise_recent(row);
  else if (p.repetition_penalty != 1)
    penalise_repetition(row, state_.counts(), p.repetition_penalty);
  if (too_short) {
    mask(row, state_.eos_ids());
    mask(row, p.stop_token_ids);
  }
  if (p.presence_penalty != 0 || p.frequency_penalty != 0)
    penalise_presence(row, state_.counts(), p.presence_penalty, p.frequency_penalty);
  if (extended_)
    extended_->finish_edits(row);
  return row;
}

// `edited`, which may be in `row`, or its contrast, which then is.
std::span<const float> sequence_sampler::contrast(std::span<const float> edited, std::span<const float> logits,
                                                  other_rows others, std::vector<float>& row) const {
  const auto* by = state_.params().techniques.contrast();
  if (others.empty() || !by)
    return edited;
  if (edited.data() != row.data())
    row.assign(edited.begin(), edited.end());
  by->contrast(logits, others.front(), row);
  return row;
}

extended_choice sequence_sampler::choose(std::span<const float> logits, other_rows others, std::uint64_t position,
                                         sampling_scratch& scratch) const {
  const auto& p = state_.params();
  auto& tokens = scratch.tokens;
  auto row = contrast(edit(logits, scratch.row), logits, others, scratch.row);
  if (p.greedy()) {
    tokens.reset(row);
    return {tokens.likeliest()};
  }
  if (extended_)
    return extended_->choose(row, position, state_.index(), tokens);
  tokens.reset(row, 1 / p.temperature);
  keep_top_k(tokens, p.top_k);
  keep_top_p(tokens, p.top_p);
  keep_min_p(tokens, p.min_p);
  return {tokens.sample(random_bits(p.seed, position, state_.index()))};
}

// What the request excludes is not the model's fault.
extended_choice sequence_sampler::choose(std::span<const float> logits, std::span<const float> allowed,
                                         other_rows others, std::uint64_t position, sampling_scratch& scratch) const {
  try {
    return choose(allowed, others, position, scratch);
  } catch (const failure& f) {
    constexpr auto never = -std::numeric_limits<float>::infinity();
    if (f.what_failed().message != nothing_to_choose || std::ranges::none_of(logits, [](float x) { return x > never; }))
      throw;
    throw nothing_allowed(state_.params());
  }
}

sampled_token sequence_sampler::sample(std::span<const float> logits, sampling_scratch& scratch) {
  return sample(logits, logits, scratch);
}

sampled_token sequence_sampler::sample(std::span<const float> logits, std::span<const float> allowed,
                                       sampling_scratch& scratch, other_rows others) {
  return take(choose(logits, allowed, others, state_.position(), scratch), logits, scratch);
}

sampled_token sequence_sampler::take(token_id id, std::span<const float> logits, sampling_scratch& scratch) {
  return take({id, extended_ ? extended_->mu() : 0}, logits, scratch);
}

sampled_token sequence_sampler::take(extended_choice choice, std::span<const float> logits, sampling_scratch& scratch) {
  sampled_token chosen;
  chosen.id = choice.id;
  chosen.mirostat_mu = choice.mu;
  if (state_.params().wants_logprobs())
    describe(logits, static_cast<std::size_t>(std::max(state_.params().logprobs, 0)), scratch.tokens, chosen);
  chosen.finish = state_.append(chosen.id);
  if (extended_) {
    extended_->append(chosen.id);
    extended_->set_mu(chosen.mirostat_mu);
  }
  return chosen;
}

// -- for strategies of groups -----------------------------------------------------------------------------------------

namespace {

/// Whether a step may drop tokens under these parameters.
bool drops(const sampling_params& p, sampler_step step) {
  switch (step) {
    case sampler_step::temperature:
    case sampler_step::smoothing: return false;
    case sampler_step::top_n_sigma: return p.top_n_sigma > 0;
    case sampler_step::top_k: return p.top_k > 0;
    case sampler_step::top_p: return p.top_p < 1;
    case sampler_step::min_p: return p.min_p > 0;
    case sampler_step::typical_p: return p.typical_p < 1;
    case sampler_step::epsilon_cutoff: return p.epsilon_cutoff > 0;
    case sampler_step::eta_cutoff: return p.eta_cutoff > 0;
    case sampler_step::top_a: return p.top_a > 0;
    case sampler_step::xtc: return p.xtc_probability > 0;
  }
  return true;
}

/// The `count` likeliest candidates, ties by lower id; ascending ids.
std::vector<std::pair<token_id, float>> likeliest_of(candidates& tokens, std::size_t count) {
  tokens.narrow(std::numeric_limits<float>::lowest());
  std::vector<std::pair<float, token_id>> best; // negated logit, id: likeliest first
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::pair one{-tokens.logits()[i], tokens.ids()[i]};
    if (best.size() == count && one > best.back())
      continue;
    best.insert(std::ranges::upper_bound(best, one), one);
    if (best.size() > count)
      best.pop_back();
  }
  std::vector<std::pair<token_id, float>> result;
  for (const auto& [negated, id] : best)
    result.emplace_back(id, -negated);
  std::ranges::sort(result);
  return result;
}

} // namespace

std::span<const float> sequence_sampler::edited(std::span<const float> scores, std::vector<float>& row) const {
  return edit(scores, row);
}

void sequence_sampler::filter(std::span<const float> scores, std::size_t least, candidates& tokens) const {
  const auto& p = state_.params();
  tokens.reset(scores);
  tokens.narrow(std::numeric_limits<float>::lowest());
  for (const auto step : p.samplers.steps()) {
    if (step == sampler_step::temperature && p.greedy())
      continue;
    if (!drops(p, step)) {
      run_step(p, step, tokens);
      continue;
    }
    const auto kept = likeliest_of(tokens, least);
    run_step(p, step, tokens);
    tokens.restore(kept);
  }
}

enum sampled_token::finish sequence_sampler::append(token_id id) {
  if (extended_)
    extended_->append(id);
  return state_.append(id);
}

token_id sequence_sampler::guess(std::span<const float> logits, std::uint64_t ahead, sampling_scratch& scratch,
                                 other_rows others) const {
  return choose(logits, logits, others, state_.position() + ahead, scratch).id;
}

} // namespace troupe
