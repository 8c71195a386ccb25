#include "runtime/sampling/logits_processors.hpp"

#include "runtime/sampling/vector_passes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace troupe {

using sampling::weight_one;

namespace {

float* logit_of(std::span<float> logits, token_id id) {
  return id >= 0 && static_cast<std::size_t>(id) < logits.size() ? &logits[static_cast<std::size_t>(id)] : nullptr;
}

// A logit so low that all tokens below it together weigh less than `tail`, given that there are at most `count`.
float floor_of_tail(float max, std::uint64_t tail, std::size_t count) {
  const std::uint64_t each = tail / count;
  if (each < 64) // too small for the slack to cover the rounding of weights
    return max + sampling::weightless;
  const float slack = 0.01f; // covers the rounding of log, exp and weights
  return max + static_cast<float>(std::log(static_cast<double>(each) / static_cast<double>(weight_one))) - slack;
}

} // namespace

void add_bias(std::span<float> logits, std::span<const std::pair<token_id, float>> biases) {
  for (const auto& [id, bias] : biases)
    if (float* logit = logit_of(logits, id))
      *logit += bias;
}

void penalise_repetition(std::span<float> logits, const token_counts& counts, float penalty) {
  for (const auto& entry : counts.distinct())
    if (float* logit = logit_of(logits, entry.id))
      *logit = *logit < 0 ? *logit * penalty : *logit / penalty;
}

void penalise_presence(std::span<float> logits, const token_counts& counts, float presence, float frequency) {
  for (const auto& entry : counts.distinct())
    if (float* logit = logit_of(logits, entry.id); logit && entry.generated > 0)
      *logit -= static_cast<float>(entry.generated) * frequency + presence;
}

void mask(std::span<float> logits, std::span<const token_id> ids) {
  for (const auto id : ids)
    if (float* logit = logit_of(logits, id))
      *logit = -std::numeric_limits<float>::infinity();
}

void apply_temperature(std::span<const float> logits, float temperature, std::span<float> scaled) {
  sampling::scale(logits.data(), logits.size(), 1 / temperature, scaled.data());
}

void keep_top_k(candidates& tokens, int k) {
  if (k > 0 && static_cast<std::size_t>(k) < tokens.size())
    tokens.narrow(tokens.kth_largest(static_cast<std::size_t>(k)));
}

namespace {

// Keeps the likeliest tokens that weigh `target` together: a token stays if those before it weigh less. All tokens weigh
// `total` or more. False if for `most` others would have to stay, too; then not only these are left.
bool keep_likeliest(candidates& tokens, std::uint64_t total, std::uint64_t target, std::uint64_t most) {
  const float max = tokens.max();
  const float floor = tokens.narrow_to_weight(target, floor_of_tail(max, total - target, tokens.size()));

  // The weight in each slice of logits, likeliest slice first.
  std::array<std::uint64_t, 2048> slices{};
  const float per_logit = (slices.size() - 1) / std::max(max - floor, 1e-3f);
  const auto slice_of = [=](float logit) { return static_cast<std::uint32_t>((max - logit) * per_logit); };
  auto weights = tokens.weights();
  for (std::size_t i = 0; i < weights.size(); ++i)
    slices[slice_of(tokens.logits()[i])] += weights[i];
  std::uint64_t before = 0;
  std::uint32_t edge_slice = 0;
  while (before + slices[edge_slice] < target)
    before += slices[edge_slice++];
  tokens.keep_if([=](token_id, float logit) { return slice_of(logit) <= edge_slice; });

  // Only the likeliest tokens of the slice at the edge stay.
  const auto logits = tokens.logits();
  weights = tokens.weights();
  std::vector<std::size_t> edge;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (slice_of(logits[i]) == edge_slice)
      edge.push_back(i);
  const auto likelier = [&](std::size_t a, std::size_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  if (!std::is_sorted(edge.begin(), edge.end(), likelier)) // sorted already if very many logits are equal
    std::sort(edge.begin(), edge.end(), likelier);
  std::size_t last = 0;
  while ((before += weights[edge[last]]) < target)
    ++last;
  if (before < most)
    return false;
  const float last_logit = logits[edge[last]];
  const token_id last_id = tokens.ids()[edge[last]];
  tokens.keep_if([=](token_id id, float logit) {
    return (logit > last_logit) | ((logit == last_logit) & (id <= last_id)); // a branch would often be mispredicted
  });
  return true;
}

} // namespace

// The exact weight of all tokens is needed only where what the likely ones weigh leaves open which is the last to stay.
void keep_top_p(candidates& tokens, float p) {
  if (p >= 1)
    return;
  const auto [least, most] = tokens.bound_total_weight();
  if (keep_likeliest(tokens, least, share_of(least, p), share_of(most, p)))
    return;
  tokens.widen();
  const auto total = tokens.total_weight(), target = share_of(total, p);
  keep_likeliest(tokens, total, target, target);
}

void keep_min_p(candidates& tokens, float p) {
  if (p <= 0x1p-41f) // such tokens weigh nothing anyway
    return;
  const float max = tokens.max();
  tokens.narrow(max + std::log(p) - 0.01f); // cheaply drops nearly all
  tokens.keep_if([=](token_id, float logit) { return sampling::exp_nonpositive(logit - max) >= p; });
}

} // namespace troupe
