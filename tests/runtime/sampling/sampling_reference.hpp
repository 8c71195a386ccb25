// From logits to a token in readable code: sorts, maps, one token at a time. The fast sampler must agree with it token
// for token.
#pragma once

#include "runtime/sampling/philox.hpp"
#include "runtime/sampling/sampling_params.hpp"
#include "runtime/sampling/vector_passes.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <vector>

namespace troupe::reference {

inline constexpr float infinity = std::numeric_limits<float>::infinity();

struct candidate {
  token_id id;
  float logit;
};

inline bool likelier(const candidate& a, const candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

inline std::uint64_t weight(const candidate& c, float max) {
  return static_cast<std::uint64_t>(std::nearbyint(sampling::exp_nonpositive(c.logit - max) * 0x1p40));
}

// The logits after bias, penalties, masks and temperature, NaN and infinities replaced.
inline std::vector<float> edited(const sampling_params& p, const std::vector<token_id>& eos, std::span<const float> row,
                                 std::span<const token_id> prompt, std::span<const token_id> emitted) {
  std::vector<float> logits(row.begin(), row.end());
  for (const auto& [id, bias] : p.logit_bias)
    logits.at(id) += bias;
  std::set<token_id> seen(prompt.begin(), prompt.end());
  seen.insert(emitted.begin(), emitted.end());
  if (p.repetition_penalty != 1)
    for (const auto id : seen)
      logits.at(id) = logits.at(id) < 0 ? logits.at(id) * p.repetition_penalty : logits.at(id) / p.repetition_penalty;
  if (static_cast<int>(emitted.size()) < p.min_tokens) {
    for (const auto id : eos)
      logits.at(id) = -infinity;
    for (const auto id : p.stop_token_ids)
      logits.at(id) = -infinity;
  }
  std::map<token_id, int> count;
  for (const auto id : emitted)
    ++count[id];
  for (const auto& [id, times] : count)
    logits.at(id) -= static_cast<float>(times) * p.frequency_penalty + p.presence_penalty;
  for (auto& logit : logits) {
    if (!p.greedy())
      logit *= 1 / p.temperature;
    if (std::isnan(logit))
      logit = -infinity;
    logit = std::min(logit, std::numeric_limits<float>::max());
  }
  return logits;
}

inline token_id choose(const sampling_params& p, const std::vector<token_id>& eos, std::span<const float> row,
                       std::span<const token_id> prompt, std::span<const token_id> emitted, std::uint32_t index) {
  const auto logits = edited(p, eos, row, prompt, emitted);
  std::vector<candidate> kept;
  for (std::size_t i = 0; i < logits.size(); ++i)
    kept.push_back({static_cast<token_id>(i), logits[i]});
  std::sort(kept.begin(), kept.end(), likelier);
  if (p.greedy())
    return kept.front().id;
  const float max = kept.front().logit;
  if (p.top_k > 0 && kept.size() > static_cast<std::size_t>(p.top_k)) {
    const float least = kept[p.top_k - 1].logit;
    std::erase_if(kept, [&](const candidate& c) { return c.logit < least; });
  }
  if (p.top_p < 1) {
    unsigned __int128 total = 0, before = 0;
    for (const auto& c : kept)
      total += weight(c, max);
    const auto parts = static_cast<std::uint64_t>(std::llround(p.top_p * 0x1p32));
    std::size_t size = 0;
    while (size == 0 || before << 32 < total * parts)
      before += weight(kept[size++], max);
    kept.resize(size);
  }
  std::erase_if(kept, [&](const candidate& c) { return sampling::exp_nonpositive(c.logit - max) < p.min_p; });
  std::sort(kept.begin(), kept.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  unsigned __int128 total = 0;
  for (const auto& c : kept)
    total += weight(c, max);
  auto offset = static_cast<std::uint64_t>(total * random_bits(p.seed, prompt.size() + emitted.size(), index) >> 64);
  for (const auto& c : kept) {
    if (offset < weight(c, max))
      return c.id;
    offset -= weight(c, max);
  }
  return -1;
}

} // namespace troupe::reference
