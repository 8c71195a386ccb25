#include "runtime/engine/best_of.hpp"

#include <algorithm>
#include <functional>
#include <limits>

namespace troupe {

best_of::best_of(const sampling_params& params)
  : n_(static_cast<std::size_t>(params.n)),
    rank_(params.rank),
    max_tokens_(static_cast<std::size_t>(params.max_tokens)),
    candidates_(static_cast<std::size_t>(params.best_of)) {}

void best_of::add(std::uint32_t candidate, float logprob) {
  auto& one = candidates_.at(candidate);
  // A NaN counts as minus infinity; no log-probability is above 0, so the sum never rises.
  one.sum += logprob <= 0 ? logprob : logprob > 0 ? 0 : -std::numeric_limits<double>::infinity();
  ++one.tokens;
}

double best_of::score(const candidate& one) const {
  return rank_ == best_of_rank::mean ? one.sum / static_cast<double>(std::max<std::size_t>(one.tokens, 1)) : one.sum;
}

void best_of::finish(std::uint32_t candidate) {
  auto& one = candidates_.at(candidate);
  if (one.finished)
    return;
  one.finished = true;
  const auto points = score(one);
  winning_.insert(std::ranges::upper_bound(winning_, points, std::greater<>()), points);
  if (winning_.size() > n_)
    winning_.pop_back();
}

bool best_of::hopeless(std::uint32_t candidate) const {
  const auto& one = candidates_.at(candidate);
  if (one.finished || winning_.size() < n_)
    return false;
  // The best that may come: certain tokens only, as many as there may be where they raise the mean. Equal scores may
  // still win by the index, so only a lower one is hopeless.
  const auto tokens = rank_ == best_of_rank::mean ? std::max(max_tokens_, one.tokens) : 1;
  return one.sum / static_cast<double>(tokens) < winning_.back();
}

std::vector<best_of::ranked> best_of::best() const {
  std::vector<ranked> result;
  for (std::uint32_t i = 0; i < candidates_.size(); ++i)
    if (candidates_[i].finished)
      result.push_back({i, candidates_[i].sum, score(candidates_[i])});
  std::ranges::stable_sort(result, std::greater<>(), &ranked::score);
  result.resize(std::min(result.size(), n_));
  return result;
}

} // namespace troupe
