#include "runtime/sampling/processors/filters.hpp"

#include "runtime/sampling/vector_passes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

using sampling::weight_one;

namespace {

constexpr float lowest_logit = std::numeric_limits<float>::lowest();
constexpr auto one = static_cast<double>(weight_one);

/// The sum of f(0), ..., f(n - 1), in eight lanes whatever the machine.
template <class F>
double lane_sum(std::size_t n, F f) {
  std::array<double, 8> lanes{};
  for (std::size_t i = 0; i < n; ++i)
    lanes[i % 8] += f(i);
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

/// Distances of logits from the largest, where they weigh anything.
double below(float max, float logit) { return static_cast<double>(logit) - static_cast<double>(max); }

/// What filters need to know of the listed tokens.
struct distribution {
  std::uint64_t total = 0;
  double log_total = 0; // of the sum of exp(logit - max)
  double entropy = 0;   // in nats
};

distribution describe(candidates& tokens) {
  tokens.narrow(lowest_logit);
  const auto weights = tokens.weights();
  const auto logits = tokens.logits();
  distribution d;
  d.total = std::accumulate(weights.begin(), weights.end(), std::uint64_t{0});
  d.log_total = std::log(static_cast<double>(d.total) / one);
  const auto mean = lane_sum(weights.size(), [&](std::size_t i) {
    return weights[i] == 0 ? 0 : static_cast<double>(weights[i]) * below(tokens.max(), logits[i]);
  });
  d.entropy = std::max(0., d.log_total - mean / static_cast<double>(d.total));
  return d;
}

/// A logit, at most `max`, that is no larger than any with a weight of `least`.
float nearly(double least, float max) {
  if (least < 64) // too small for the slack to cover the rounding of weights
    return lowest_logit;
  return std::min(max, max + static_cast<float>(std::log(least / one)) - 0.01f);
}

/// Keeps tokens of a weight of at least `least`, and the likeliest.
void keep_weight(candidates& tokens, double least) {
  const float max = tokens.max();
  tokens.narrow(nearly(least, max));
  tokens.keep_if([=](token_id, float logit) {
    return (static_cast<double>(sampling::weight(logit, max)) >= least) | (logit == max);
  });
}

/// The distance of a token, and its weight.
using distant = std::pair<double, std::uint64_t>;

/// The least distance within which there is a weight of at least `target`, beside `before` that is nearer than all of
/// `tokens`. Reorders.
double radius(std::vector<distant>& tokens, std::uint64_t target, std::uint64_t before) {
  auto first = tokens.begin(), last = tokens.end();
  while (last - first > 1) {
    const auto middle = first + (last - first) / 2;
    std::nth_element(first, middle, last);
    const auto half = std::accumulate(first, middle, std::uint64_t{0},
                                      [](std::uint64_t sum, const distant& token) { return sum + token.second; });
    if (before + half >= target) {
      last = middle;
    } else {
      before += half;
      first = middle;
    }
  }
  return first->first;
}

/// The radius over all tokens. Only those of one slice of distances are ordered.
double radius(std::span<const double> distances, std::span<const std::uint64_t> weights, std::uint64_t target) {
  std::array<std::uint64_t, 2048> slices{};
  const auto slice_of = [](double distance) { // weights end at a distance of 29 from the likeliest
    return std::min<std::size_t>(static_cast<std::size_t>(distance * 32), 2047);
  };
  for (std::size_t i = 0; i < weights.size(); ++i)
    if (weights[i] != 0)
      slices[slice_of(distances[i])] += weights[i];
  std::uint64_t before = 0;
  std::size_t edge = 0;
  while (before + slices[edge] < target)
    before += slices[edge++];
  std::vector<distant> at_edge;
  for (std::size_t i = 0; i < weights.size(); ++i)
    if (weights[i] != 0 && slice_of(distances[i]) == edge)
      at_edge.emplace_back(distances[i], weights[i]);
  return radius(at_edge, target, before);
}

} // namespace

void keep_top_n_sigma(candidates& tokens, float n) {
  if (n <= 0)
    return;
  tokens.narrow(lowest_logit);
  const auto logits = tokens.logits();
  const auto count = static_cast<double>(logits.size());
  const auto mean = lane_sum(logits.size(), [&](std::size_t i) { return static_cast<double>(logits[i]); }) / count;
  const auto variance = lane_sum(logits.size(), [&](std::size_t i) {
    const auto d = static_cast<double>(logits[i]) - mean;
    return d * d;
  });
  const auto floor = static_cast<double>(tokens.max()) - static_cast<double>(n) * std::sqrt(variance / count);
  tokens.narrow(floor > static_cast<double>(lowest_logit) ? static_cast<float>(floor) : lowest_logit);
}

void keep_typical(candidates& tokens, float p) {
  if (p >= 1)
    return;
  const auto d = describe(tokens);
  const auto logits = tokens.logits();
  const auto weights = tokens.weights();
  std::vector<double> distances(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i)
    distances[i] = weights[i] != 0 ? std::abs(d.log_total - below(tokens.max(), logits[i]) - d.entropy)
                                   : std::numeric_limits<double>::infinity();
  const auto edge = radius(distances, weights, share_of(d.total, p));
  std::size_t i = 0;
  tokens.keep_if([&](token_id, float) { return distances[i++] <= edge; });
  tokens.settle();
}

void keep_epsilon(candidates& tokens, float epsilon) {
  if (epsilon > 0)
    keep_weight(tokens, static_cast<double>(epsilon) * static_cast<double>(tokens.total_weight()));
}

void keep_eta(candidates& tokens, float epsilon) {
  if (epsilon <= 0)
    return;
  const auto d = describe(tokens);
  const auto e = static_cast<double>(epsilon);
  keep_weight(tokens, std::min(e, std::sqrt(e) * std::exp(-d.entropy)) * static_cast<double>(d.total));
}

void keep_top_a(candidates& tokens, float a) {
  if (a > 0)
    keep_weight(tokens, static_cast<double>(a) * one * (one / static_cast<double>(tokens.total_weight())));
}

void exclude_top_choices(candidates& tokens, float threshold, float probability, std::uint64_t bits) {
  if (static_cast<double>(bits >> 11) * 0x1p-53 >= static_cast<double>(probability))
    return;
  tokens.narrow(lowest_logit);
  const auto least = static_cast<double>(threshold) * static_cast<double>(tokens.total_weight());
  const float max = tokens.max();
  const auto near = nearly(least, max);
  const auto is_top = [=](float logit) {
    return logit >= near && static_cast<double>(sampling::weight(logit, max)) >= least;
  };
  std::size_t top = 0;
  std::size_t last = 0; // the least likely of them
  const auto logits = tokens.logits();
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (is_top(logits[i]))
      if (top++ == 0 || logits[i] <= logits[last])
        last = i;
  if (top < 2)
    return;
  const auto stays = tokens.ids()[last];
  tokens.keep_if([=](token_id id, float logit) { return (id == stays) | !is_top(logit); });
  tokens.settle();
}

void apply_dynamic_temperature(candidates& tokens, float temperature, float range, float exponent) {
  const auto low = std::max(0., static_cast<double>(temperature) - static_cast<double>(range)),
             high = static_cast<double>(temperature) + static_cast<double>(range);
  const auto d = describe(tokens);
  if (tokens.size() < 2)
    return;
  const auto share = std::min(1., d.entropy / std::log(static_cast<double>(tokens.size())));
  const auto chosen = low + (high - low) * std::pow(share, static_cast<double>(exponent));
  const float factor = 1 / static_cast<float>(std::max(chosen, 0.01));
  tokens.reshape([=](float logit) { return logit * factor; });
}

void smooth(candidates& tokens, float factor, float curve) {
  if (factor <= 0)
    return;
  const float max = tokens.max();
  const float k = factor * (3 - curve) / 2, s = factor * (curve - 1) / 2;
  tokens.reshape([=](float logit) {
    const float d = std::max(logit - max, -1e6f); // so that its cube is finite
    return max - k * (d * d) + s * (d * d * d);
  });
}

mirostat_draw draw_mirostat(candidates& tokens, float mu, float tau, float eta, std::uint64_t bits) {
  const float max = tokens.max();
  const auto furthest = tokens.log_total() - static_cast<double>(mu) * std::numbers::ln2;
  const auto floor = static_cast<double>(max) + furthest - 0.01;
  tokens.narrow(std::clamp(static_cast<float>(std::max(floor, static_cast<double>(lowest_logit))), lowest_logit, max));
  tokens.keep_if([=](token_id, float logit) { return (below(max, logit) >= furthest) | (logit == max); });
  mirostat_draw drawn{tokens.sample(bits), mu};
  const auto ids = tokens.ids();
  const auto at = static_cast<std::size_t>(std::ranges::lower_bound(ids, drawn.id) - ids.begin());
  const auto surprise = (tokens.log_total() - below(max, tokens.logits()[at])) / std::numbers::ln2;
  drawn.mu = static_cast<float>(static_cast<double>(mu) -
                                static_cast<double>(eta) * (surprise - static_cast<double>(tau)));
  return drawn;
}

} // namespace troupe
