#include "runtime/sampling/processors/extended_sampler.hpp"

#include "runtime/sampling/logits_processors.hpp"
#include "runtime/sampling/philox.hpp"
#include "runtime/sampling/processors/filters.hpp"
#include "runtime/sampling/sampling_ranges.hpp"

#include <algorithm>
#include <limits>

namespace troupe {

namespace {

constexpr std::uint32_t xtc_random = 1;

bool looks_back(const sampling_params& p) {
  return p.repetition_penalty_range > 0 || p.dry_multiplier > 0 || p.no_repeat_ngram_size > 0 ||
    p.sequence_biases.longest() > 1;
}

/// Leaves only allowed ids, which are ascending.
void mask_all_but(std::span<float> logits, const token_set& allowed) {
  std::size_t next = 0;
  for (const auto id : allowed) {
    const auto at = std::min(static_cast<std::size_t>(id), logits.size());
    std::fill(logits.begin() + static_cast<std::ptrdiff_t>(next), logits.begin() + static_cast<std::ptrdiff_t>(at),
              -std::numeric_limits<float>::infinity());
    next = std::min(at + 1, logits.size());
  }
  std::fill(logits.begin() + static_cast<std::ptrdiff_t>(next), logits.end(), -std::numeric_limits<float>::infinity());
}

} // namespace

extended_sampler::extended_sampler(std::shared_ptr<const sampling_params> params, std::span<const token_id> prompt,
                                   std::span<const token_id> emitted, float mu, std::uint32_t index)
  : params_(std::move(params)), keeps_transcript_(looks_back(*params_)) {
  if (params_->no_repeat_ngram_size > 0)
    ngrams_.emplace(static_cast<std::size_t>(params_->no_repeat_ngram_size));
  if (keeps_transcript_)
    for (const auto id : prompt) {
      transcript_.push_back(id);
      if (ngrams_)
        ngrams_->append(transcript_);
    }
  for (const auto& use : params_->techniques)
    if (auto edit = use->edit(params_->seed, index))
      edits_.add(std::move(edit));
  for (const auto id : emitted)
    append(id);
  mu_ = emitted.empty() ? 2 * params_->mirostat_tau : mu;
}

void extended_sampler::append(token_id id) {
  if (keeps_transcript_)
    transcript_.push_back(id);
  if (ngrams_)
    ngrams_->append(transcript_);
  for (const auto& edit : edits_)
    edit->append(id);
}

std::span<const token_id> extended_sampler::recent(int range) const {
  return std::span(transcript_).last(std::min(transcript_.size(), static_cast<std::size_t>(range)));
}

void extended_sampler::add_biases(std::span<float> logits) const {
  add_sequence_biases(logits, params_->sequence_biases, transcript_);
}

void extended_sampler::penalise_recent(std::span<float> logits) const {
  troupe::penalise_recent(logits, recent(params_->repetition_penalty_range), params_->repetition_penalty);
}

void extended_sampler::finish_edits(std::span<float> logits) const {
  const auto& p = *params_;
  if (p.dry_multiplier > 0)
    penalise_repeats(logits, recent(p.dry_range > 0 ? p.dry_range : sampling_fields::most_dry_range), p.dry_breakers,
                     {p.dry_multiplier, p.dry_base, p.dry_allowed_length});
  if (!p.allowed_token_ids.empty())
    mask_all_but(logits, p.allowed_token_ids);
  if (ngrams_)
    ngrams_->mask(logits, transcript_);
  for (const auto& edit : edits_)
    edit->edit(logits);
}

void run_step(const sampling_params& p, sampler_step step, candidates& tokens, std::uint64_t xtc_bits) {
  switch (step) {
    case sampler_step::temperature:
      if (p.dynatemp_range > 0)
        apply_dynamic_temperature(tokens, p.temperature, p.dynatemp_range, p.dynatemp_exponent);
      else if (p.temperature != 1)
        tokens.reshape([factor = 1 / p.temperature](float logit) { return logit * factor; });
      break;
    case sampler_step::smoothing: smooth(tokens, p.smoothing_factor, p.smoothing_curve); break;
    case sampler_step::top_n_sigma: keep_top_n_sigma(tokens, p.top_n_sigma); break;
    case sampler_step::top_k: keep_top_k(tokens, p.top_k); break;
    case sampler_step::top_p: keep_top_p(tokens, p.top_p); break;
    case sampler_step::min_p: keep_min_p(tokens, p.min_p); break;
    case sampler_step::typical_p: keep_typical(tokens, p.typical_p); break;
    case sampler_step::epsilon_cutoff: keep_epsilon(tokens, p.epsilon_cutoff); break;
    case sampler_step::eta_cutoff: keep_eta(tokens, p.eta_cutoff); break;
    case sampler_step::top_a: keep_top_a(tokens, p.top_a); break;
    case sampler_step::xtc:
      if (p.xtc_probability > 0)
        exclude_top_choices(tokens, p.xtc_threshold, p.xtc_probability, xtc_bits);
      break;
  }
}

extended_choice extended_sampler::choose(std::span<const float> logits, std::uint64_t position, std::uint32_t index,
                                         candidates& tokens) const {
  const auto& p = *params_;
  auto steps = p.samplers.steps();
  if (!steps.empty() && steps.front() == sampler_step::temperature && p.dynatemp_range <= 0) { // without listing all
    tokens.reset(logits, 1 / p.temperature);
    steps = steps.subspan(1);
  } else {
    tokens.reset(logits);
  }
  const auto bits = random_bits(p.seed, position, index);
  if (p.mirostat != 0) {
    for (const auto step : steps)
      if (step <= sampler_step::smoothing)
        run_step(p, step, tokens);
    const auto drawn = draw_mirostat(tokens, mu_, p.mirostat_tau, p.mirostat_eta, bits);
    return {drawn.id, drawn.mu};
  }
  for (const auto step : steps)
    run_step(p, step, tokens, random_bits(p.seed, position, index, xtc_random));
  for (const auto& edit : edits_)
    if (const auto chosen = edit->choose(tokens))
      return {*chosen, mu_};
  return {tokens.sample(bits), mu_};
}

} // namespace troupe
