#include "runtime/techniques/guidance/guided_pair.hpp"

#include "runtime/sampling/row_contrast.hpp"

#include <cmath>
#include <limits>
#include <utility>

namespace troupe {

namespace {

constexpr auto impossible = -std::numeric_limits<float>::infinity();

/// log(sum(exp(row))); NaN and minus infinity count for nothing.
double log_total_of(std::span<const float> row) {
  const float most = largest_score(row);
  double total = 0;
  for (const auto x : row)
    if (x > impossible)
      total += std::exp(static_cast<double>(x) - static_cast<double>(most));
  return static_cast<double>(most) + std::log(total);
}

} // namespace

void guidance_scores(std::span<const float> prompted, std::span<const float> unprompted, float scale,
                     std::span<float> scores) {
  const double with = log_total_of(prompted), without = log_total_of(unprompted);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const double p = static_cast<double>(prompted[i]) - with, u = static_cast<double>(unprompted[i]) - without;
    scores[i] = !std::isfinite(p) ? impossible : static_cast<float>(std::isfinite(u) ? scale * (p - u) + u : p);
  }
}

guided_pair::guided_pair(float scale, group_start start)
  : scale_(scale),
    sampler_(std::move(start.params), std::move(start.eos_ids), start.prompt, start.emitted, 0, start.mirostat_mu) {}

std::vector<group_child> guided_pair::judge(rows logits, rows allowed, sampling_scratch& scratch) {
  scores_.resize(logits[0].size());
  guidance_scores(logits[0], logits[1], scale_, scores_);
  if (allowed[0].data() != logits[0].data())
    for (std::size_t i = 0; i < scores_.size(); ++i)
      if (allowed[0][i] == impossible)
        scores_[i] = impossible;
  last_ = sampler_.sample(logits[0], scores_, scratch);
  if (last_.finish != sampled_token::finish::none)
    return {};
  return {{0, last_.id}, {1, last_.id}};
}

} // namespace troupe
