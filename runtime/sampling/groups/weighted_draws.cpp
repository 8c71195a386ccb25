#include "runtime/sampling/groups/weighted_draws.hpp"

#include <numeric>

namespace troupe {

namespace {

constexpr std::size_t drawn_block = 64;

/// exp(-lightest) is below half of the least weight, 2^-40.
constexpr float lightest = 29;

} // namespace

void weighted_draws::reset(std::span<const float> logits, candidates& tokens) {
  tokens.reset(logits);
  reset(tokens);
}

void weighted_draws::reset(candidates& tokens) {
  max_ = tokens.max();
  tokens.narrow(max_ - lightest);
  scores_.assign(tokens.logits().begin(), tokens.logits().end());
  ids_.assign(tokens.ids().begin(), tokens.ids().end());
  const auto weights = tokens.weights();
  weights_.assign(weights.begin(), weights.end());
  sums_.clear();
  total_ = 0;
  for (std::size_t i = 0; i < weights_.size(); i += drawn_block) {
    const auto first = weights_.begin() + static_cast<std::ptrdiff_t>(i);
    sums_.push_back(std::accumulate(
      first, first + static_cast<std::ptrdiff_t>(std::min(drawn_block, weights_.size() - i)), std::uint64_t{0}));
    total_ += sums_.back();
  }
}

weighted_draws::drawn weighted_draws::draw(std::uint64_t bits) {
  auto offset = static_cast<std::uint64_t>(static_cast<unsigned __int128>(bits) * total_ >> 64);
  std::size_t b = 0;
  for (; offset >= sums_[b]; ++b)
    offset -= sums_[b];
  std::size_t i = b * drawn_block;
  for (; offset >= weights_[i]; ++i)
    offset -= weights_[i];
  const drawn result{ids_[i], weights_[i], scores_[i]};
  total_ -= result.weight;
  sums_[b] -= result.weight;
  weights_[i] = 0;
  return result;
}

} // namespace troupe
