#include "runtime/sampling/processors/repetition.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe {

namespace {

constexpr float cannot_follow = -std::numeric_limits<float>::infinity();

float* logit_at(std::span<float> logits, token_id id) {
  return id >= 0 && static_cast<std::size_t>(id) < logits.size() ? &logits[static_cast<std::size_t>(id)] : nullptr;
}

/// How many tokens of the end of `ids` also end at each earlier place: for place i, of ids[0..i]. The Z algorithm over
/// the reversed sequence.
std::vector<std::uint32_t> repeated_ends(std::span<const token_id> ids) {
  const auto n = ids.size();
  const auto at = [&](std::size_t i) { return ids[n - 1 - i]; };
  std::vector<std::uint32_t> z(n);
  for (std::size_t i = 1, left = 0, right = 0; i < n; ++i) {
    std::size_t length = i < right ? std::min<std::size_t>(right - i, z[i - left]) : 0;
    while (i + length < n && at(length) == at(i + length))
      ++length;
    z[i] = static_cast<std::uint32_t>(length);
    if (i + length > right) {
      left = i;
      right = i + length;
    }
  }
  std::ranges::reverse(z);
  return z;
}

} // namespace

void add_sequence_biases(std::span<float> logits, const sequence_bias_list& biases,
                         std::span<const token_id> transcript) {
  for (const auto& [tokens, bias] : biases) {
    const auto before = std::span(tokens).first(tokens.size() - 1);
    if (before.size() > transcript.size() || !std::ranges::equal(before, transcript.last(before.size())))
      continue;
    if (float* logit = logit_at(logits, tokens.back()))
      *logit += bias;
  }
}

void penalise_recent(std::span<float> logits, std::span<const token_id> recent, float penalty) {
  std::vector<token_id> distinct(recent.begin(), recent.end());
  std::ranges::sort(distinct);
  const auto same = std::ranges::unique(distinct);
  distinct.erase(same.begin(), same.end());
  for (const auto id : distinct)
    if (float* logit = logit_at(logits, id))
      *logit = *logit < 0 ? *logit * penalty : *logit / penalty;
}

void penalise_repeats(std::span<float> logits, std::span<const token_id> recent, const token_set& breakers,
                      const dry_options& options) {
  // No match is longer than the end of the text that has no breaker.
  const auto broken = std::find_if(recent.rbegin(), recent.rend(), [&](token_id id) { return breakers.contains(id); });
  const auto unbroken = static_cast<std::uint32_t>(broken - recent.rbegin());
  const auto least = static_cast<std::uint32_t>(std::max(options.allowed_length, 1));
  if (unbroken < least || recent.size() < 2)
    return;
  const auto ends = repeated_ends(recent);
  std::unordered_map<token_id, std::uint32_t> longest; // of each token that followed
  for (std::size_t i = 0; i + 1 < recent.size(); ++i)
    if (const auto length = std::min(ends[i], unbroken); length >= least && !breakers.contains(recent[i + 1])) {
      auto& known = longest[recent[i + 1]];
      known = std::max(known, length);
    }
  for (const auto& [id, length] : longest)
    if (float* logit = logit_at(logits, id)) {
      const auto excess = static_cast<double>(length) - options.allowed_length;
      const auto loss = static_cast<double>(options.multiplier) * std::pow(static_cast<double>(options.base), excess);
      *logit -= static_cast<float>(std::min(loss, 1e30));
    }
}

std::uint64_t ngram_index::hash(std::span<const token_id> ids) {
  std::uint64_t h = ids.size();
  for (const auto id : ids) { // splitmix64 of each token and what is before it
    h += 0x9e3779b97f4a7c15 + static_cast<std::uint64_t>(static_cast<std::uint32_t>(id)) * 0xd1342543de82ef95;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9;
    h = (h ^ (h >> 27)) * 0x94d049bb133111eb;
    h ^= h >> 31;
  }
  return h;
}

void ngram_index::append(std::span<const token_id> transcript) {
  if (transcript.size() < n_)
    return;
  const auto gram = transcript.last(n_);
  if (seen_.insert(hash(gram)).second)
    followers_[hash(gram.first(n_ - 1))].push_back(gram.back());
}

void ngram_index::mask(std::span<float> logits, std::span<const token_id> transcript) const {
  if (transcript.size() + 1 < n_)
    return;
  const auto found = followers_.find(hash(transcript.last(n_ - 1)));
  if (found == followers_.end())
    return;
  for (const auto id : found->second)
    if (float* logit = logit_at(logits, id))
      *logit = cannot_follow;
}

} // namespace troupe
