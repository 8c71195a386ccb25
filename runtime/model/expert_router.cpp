#include "runtime/model/expert_router.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace troupe {

namespace {

constexpr float least = -std::numeric_limits<float>::infinity();

void softmax(std::vector<float>& values) {
  const float top = *std::ranges::max_element(values);
  float sum = 0;
  for (float& v : values)
    sum += v = std::exp(v - top);
  for (float& v : values)
    v /= sum;
}

std::vector<float> scores_of(const expert_config& config, std::span<const float> logits) {
  std::vector<float> scores(logits.begin(), logits.end());
  if (config.cap > 0)
    for (float& s : scores)
      s = config.cap * std::tanh(s / config.cap);
  switch (config.scores) {
    case router_scores::softmax: softmax(scores); break;
    case router_scores::sigmoid:
      for (float& s : scores)
        s = 1 / (1 + std::exp(-s));
      break;
    case router_scores::root_softplus:
      for (float& s : scores)
        s = std::sqrt(s > 20 ? s : std::log1p(std::exp(s)));
      break;
    case router_scores::chosen:
    case router_scores::mixed: break;
  }
  return scores;
}

/// The indices of the `count` highest values, highest first.
std::vector<int> highest(const std::vector<float>& values, int count) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](int a, int b) {
    const float x = values[static_cast<std::size_t>(a)], y = values[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  });
  order.resize(static_cast<std::size_t>(count));
  return order;
}

/// Leaves only the experts of the best groups.
void keep_groups(const expert_config& config, std::vector<float>& ranks) {
  const auto size = ranks.size() / static_cast<std::size_t>(config.groups);
  std::vector<float> worth;
  for (std::size_t first = 0; first < ranks.size(); first += size) {
    std::vector<float> group(ranks.begin() + static_cast<std::ptrdiff_t>(first),
                             ranks.begin() + static_cast<std::ptrdiff_t>(first + size));
    std::ranges::sort(group, std::greater<>());
    worth.push_back(config.group_by_two && size > 1 ? group[0] + group[1] : group[0]);
  }
  std::vector<bool> kept(worth.size(), false);
  for (const int g : highest(worth, config.chosen_groups))
    kept[static_cast<std::size_t>(g)] = true;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (!kept[i / size])
      ranks[i] = least;
}

/// The weight of the best of `scores`, among those that are nearly as good. `all` has those chosen before, too.
float mixed_weight(const std::vector<float>& scores, std::span<const float> all, float best, float margin) {
  float sum = 0;
  for (std::size_t i = 0; i < scores.size(); ++i)
    if ((best - all[i]) / std::max(std::abs(all[i]), best) <= margin)
      sum += std::exp(scores[i] - best);
  return 1 / sum;
}

} // namespace

expert_choice choose_experts(const expert_config& config, std::span<const float> logits,
                             std::span<const float> correction, std::span<const int> given) {
  const auto scores = scores_of(config, logits);
  auto ranks = config.weigh_inputs ? std::vector<float>(logits.begin(), logits.end()) : scores; // as Llama 4 does
  const int choosable = config.count - config.always;
  if (config.always > 0)
    ranks.resize(static_cast<std::size_t>(choosable));
  for (std::size_t i = 0; i < correction.size(); ++i)
    ranks[i] += correction[i];
  for (float& r : ranks)
    r = std::isnan(r) ? least : r;
  if (config.groups > 1)
    keep_groups(config, ranks);
  expert_choice choice{
    given.empty() ? highest(ranks, config.chosen - config.always) : std::vector<int>(given.begin(), given.end()), {}};
  for (int e = choosable; e < config.count; ++e)
    choice.experts.push_back(e);
  for (const int e : choice.experts)
    choice.weights.push_back(scores[static_cast<std::size_t>(e)]);
  if (config.scores == router_scores::chosen)
    softmax(choice.weights);
  if (config.scores == router_scores::mixed) {
    auto left = scores;
    for (std::size_t i = 0; i < choice.experts.size(); ++i) {
      choice.weights[i] = mixed_weight(left, scores, choice.weights[i], config.margin);
      left[static_cast<std::size_t>(choice.experts[i])] = least;
    }
  }
  if (config.renormalise) {
    const float sum = std::accumulate(choice.weights.begin(), choice.weights.end(), 0.0f);
    for (float& w : choice.weights)
      w /= config.scores == router_scores::sigmoid || config.scores == router_scores::root_softplus ? sum + 1e-20f
                                                                                                    : sum;
  }
  for (float& w : choice.weights)
    w *= config.scale;
  return choice;
}

std::vector<expert_rows> group_by_expert(const expert_config& config, std::span<const float> logits,
                                         std::span<const float> correction, std::span<const int> given) {
  const auto chosen = static_cast<std::size_t>(config.chosen);
  const auto count = static_cast<std::size_t>(config.count);
  std::vector<expert_rows> all(count);
  for (std::size_t row = 0; row * count < logits.size(); ++row) {
    const auto choice = choose_experts(config, logits.subspan(row * count, count), correction,
                                       given.empty() ? given : given.subspan(row * chosen, chosen));
    for (std::size_t i = 0; i < choice.experts.size(); ++i) {
      auto& expert = all[static_cast<std::size_t>(choice.experts[i])];
      expert.rows.push_back(static_cast<std::int32_t>(row));
      expert.weights.push_back(choice.weights[i]);
    }
  }
  std::vector<expert_rows> used;
  for (std::size_t e = 0; e < count; ++e)
    if (!all[e].rows.empty()) {
      all[e].expert = static_cast<int>(e);
      used.push_back(std::move(all[e]));
    }
  return used;
}

} // namespace troupe
