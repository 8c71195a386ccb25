// Contrasts the logits from which a token is chosen with those of an inner layer of the same model. Pure; any thread.
#pragma once

#include <span>

namespace troupe {

/// Minus infinity if there is none; NaNs are not looked at.
float largest_score(std::span<const float> row);

/// DoLa (Chuang et al. 2023) as in transformers, for one inner layer: log-softmax of the scores less that of `inner`
/// [vocab], up to a constant of the row, where a score is at least log(0.1) + the largest, else minus infinity, also
/// where `inner` is not finite. `scores` [vocab] come as the model's logits after a request's edits.
void contrast_with_layer(std::span<const float> inner, std::span<float> scores);

/// A row of logits and what makes log-probabilities of them: logit - most - log_total.
struct normalised_row {
  explicit normalised_row(std::span<const float> row);

  std::span<const float> logits;
  float most, log_total; // NaN if no logit is finite
};

/// How far the distribution of `inner` is from that of `final`: the Jensen-Shannon divergence as transformers' DoLa has
/// it, half the sum of the Kullback-Leibler divergences of both their mean has from either. Not finite where a logit is
/// not.
double layer_divergence(const normalised_row& final, const normalised_row& inner);

} // namespace troupe
