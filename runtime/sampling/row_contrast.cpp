#include "runtime/sampling/row_contrast.hpp"

#include "runtime/sampling/vector_passes.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace troupe {

namespace {

constexpr auto never = -std::numeric_limits<float>::infinity();

} // namespace

float largest_score(std::span<const float> row) {
  float most = never;
  for (const auto x : row)
    most = std::max(most, x); // false for NaN
  return most;
}

void contrast_with_layer(std::span<const float> inner, std::span<float> scores) {
  const auto least = static_cast<float>(static_cast<double>(largest_score(scores)) + std::log(0.1));
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const bool plausible = scores[i] >= least && std::isfinite(scores[i]) && std::isfinite(inner[i]);
    scores[i] = plausible ? scores[i] - inner[i] : never;
  }
}

normalised_row::normalised_row(std::span<const float> row) : logits(row) {
  std::vector<float> maxima((row.size() + sampling::block - 1) / sampling::block);
  sampling::block_maxima(row.data(), row.size(), maxima.data());
  most = maxima.empty() ? never : *std::ranges::max_element(maxima);
  if (!std::isfinite(most)) {
    most = log_total = std::numeric_limits<float>::quiet_NaN();
    return;
  }
  std::vector<std::uint64_t> weights(maxima.size());
  sampling::block_weights(row.data(), row.size(), 1, maxima.data(), most, weights.data());
  const auto total = std::accumulate(weights.begin(), weights.end(), std::uint64_t{0});
  log_total = static_cast<float>(std::log(static_cast<double>(total) / static_cast<double>(sampling::weight_one)));
}

double layer_divergence(const normalised_row& final, const normalised_row& inner) {
  return sampling::mean_log_cosh(final.logits.data(), final.most, final.log_total, inner.logits.data(), inner.most,
                                 inner.log_total, final.logits.size());
}

} // namespace troupe
