#include "runtime/techniques/stochastic_beams/stochastic_beam_search.hpp"

#include "runtime/sampling/groups/random_pair.hpp"
#include "runtime/sampling/groups/row_likelihoods.hpp"
#include "runtime/sampling/logits_processors.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {

namespace {

/// A Gumbel variable at `location`, given that it is below `bound`; `uniform` is its probability there.
double gumbel_below(double location, double bound, double uniform) {
  // location - log(exp(location - bound) - log(uniform)), so that neither exponential overflows.
  const auto excess = -std::log(uniform), above = bound - location;
  return above > 0 ? location - std::log(std::exp(-above) + excess) : bound - std::log1p(excess * std::exp(above));
}

/// The counter's last word of the root's variable; no draw has it.
constexpr std::uint32_t root_draw = 0xFFFFFFFE;

} // namespace

stochastic_beam_search::stochastic_beam_search(int width, std::shared_ptr<const sampling_params> params,
                                               std::vector<token_id> eos_ids, std::span<const token_id> prompt,
                                               token_text_ptr text)
  : params_(std::move(params)),
    endings_(*params_, eos_ids),
    texts_(*params_, std::move(text)),
    prompt_tokens_(prompt.size()),
    width_(static_cast<std::size_t>(width)) {
  auto without_temperature = *params_;
  without_temperature.temperature = 1;
  if (without_temperature.shaped() || without_temperature.filtered())
    laws_.emplace(params_, std::move(eos_ids), prompt);
  const auto uniform = random_numbers(params_->seed, prompt_tokens_, 0, root_draw).uniform;
  samples_.push_back({.perturbed = -std::log(-std::log(uniform))});
}

std::vector<group_child> stochastic_beam_search::judge(rows logits, rows allowed, sampling_scratch& scratch) {
  std::vector<sample> kept;
  for (const auto& one : samples_)
    if (one.why != sampled_token::finish::none)
      kept.push_back(one);
  std::uint32_t row = 0;
  for (const auto& one : samples_)
    if (one.why == sampled_token::finish::none) {
      if (read(row, logits[row], allowed[row], scratch))
        extend(one, row, kept);
      ++row;
    }
  samples_ = std::move(kept);
  if (samples_.empty())
    throw nothing_allowed(*params_);
  auto children = grow(logits, scratch);
  if (laws_)
    laws_->advance(children);
  texts_.advance(children, emitted_);
  return children;
}

// Leaves what may follow a row in draws_; returns whether anything may.
bool stochastic_beam_search::read(std::uint32_t row, std::span<const float> logits, std::span<const float> allowed,
                                  sampling_scratch& scratch) {
  if (!laws_) {
    draws_.reset(edit(allowed, scratch.row), scratch.tokens);
    return true;
  }
  const row_likelihoods of(logits, 0, scratch.tokens);
  if (!laws_->read_filtered(row, logits, allowed, of, 1, scratch))
    return false;
  draws_.reset(scratch.tokens);
  return true;
}

// Books the continuations that were kept.
std::vector<group_child> stochastic_beam_search::grow(std::span<const std::span<const float>> logits,
                                                      sampling_scratch& scratch) {
  const auto reported = static_cast<std::size_t>(std::max(params_->logprobs, 0));
  std::vector<std::optional<judged_row>> rows(logits.size());
  std::vector<group_child> children;
  for (auto& one : samples_) {
    if (one.in_tree)
      continue;
    auto& row = rows[one.row];
    if (!row) {
      row.emplace(judged_row{row_likelihoods(logits[one.row], reported, scratch.tokens)});
      row->place = tree_.add_row(row->tokens.top(reported));
    }
    const auto logprob = row->tokens.logprob(logits[one.row][static_cast<std::size_t>(one.token)]);
    one.last = tree_.append(one.last, one.token, static_cast<float>(logprob), row->place);
    one.in_tree = true;
    if (one.why == sampled_token::finish::none)
      children.push_back({one.row, one.token});
  }
  ++emitted_;
  return children;
}

// Draws continuations until they cannot be among the samples that are kept.
void stochastic_beam_search::extend(const sample& parent, std::uint32_t row, std::vector<sample>& kept) {
  const auto total = static_cast<double>(draws_.total());
  auto perturbed = parent.perturbed;
  for (std::uint32_t draw = 0; draws_.total() > 0; ++draw) {
    const auto random = random_numbers(params_->seed, prompt_tokens_ + emitted_, row, draw);
    // The largest variable of all continuations is the parent's own.
    if (draw > 0)
      perturbed = gumbel_below(parent.logprob + std::log(static_cast<double>(draws_.total()) / total), perturbed,
                               random.uniform);
    if (kept.size() == width_ && perturbed <= kept.back().perturbed)
      break;
    const auto chosen = draws_.draw(random.choice);
    auto why = endings_.of(chosen.id, emitted_ + 1);
    if ((why == sampled_token::finish::none || why == sampled_token::finish::length) &&
        texts_.stops(row, chosen.id, emitted_ + 1))
      why = sampled_token::finish::text;
    keep({.last = parent.last,
          .logprob = parent.logprob + std::log(static_cast<double>(chosen.weight) / total),
          .perturbed = perturbed,
          .why = why,
          .in_tree = false,
          .row = row,
          .token = chosen.id},
         kept);
  }
}

std::span<const float> stochastic_beam_search::edit(std::span<const float> logits, std::vector<float>& row) const {
  const bool no_end = endings_.forbidden(emitted_);
  if (!no_end && params_->temperature == 1)
    return logits;
  row.assign(logits.begin(), logits.end());
  if (no_end)
    mask(row, endings_.ids());
  if (params_->temperature != 1)
    apply_temperature(row, params_->temperature, row);
  return row;
}

void stochastic_beam_search::keep(const sample& one, std::vector<sample>& kept) const {
  const auto below = [](double perturbed, const sample& s) { return perturbed > s.perturbed; };
  kept.insert(std::upper_bound(kept.begin(), kept.end(), one.perturbed, below), one);
  if (kept.size() > width_)
    kept.pop_back();
}

std::vector<hypothesis> stochastic_beam_search::results() const {
  std::vector<hypothesis> result;
  for (const auto& one : samples_)
    if (one.why != sampled_token::finish::none && result.size() < static_cast<std::size_t>(params_->n))
      result.push_back({tree_.path(one.last, one.why), one.logprob, one.perturbed});
  return result;
}

} // namespace troupe
