#include "runtime/scheduling/lengths/answer_length.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace troupe {

std::size_t answer_length::bucket_of(std::int64_t tokens) {
  const auto width = std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(tokens, 1)));
  return std::min(static_cast<std::size_t>(width) - 1, buckets - 1);
}

answer_length::answer_length(const shares& of, std::int32_t most) : most_(std::max(most, 1)) {
  const auto all = std::accumulate(of.begin(), of.end(), 0.0);
  const auto last = bucket_of(most_);
  for (std::size_t i = 0; i < buckets; ++i)
    shares_[std::min(i, last)] += all > 0 ? of[i] / all : i == last ? 1 : 0;
}

std::size_t answer_length::place(std::int32_t tokens) const { return bucket_of(std::min(tokens, most_)); }

double answer_length::share_below(std::int32_t tokens) const {
  return std::accumulate(shares_.begin(), shares_.begin() + static_cast<std::ptrdiff_t>(place(tokens)), 0.0);
}

answer_length::stretch answer_length::rest_of(std::size_t bucket, std::int32_t produced) const {
  const auto first = static_cast<double>(std::uint64_t(1) << bucket);
  const auto end = std::min(2 * first, static_cast<double>(most_) + 1);
  const auto begin = std::max(first, static_cast<double>(produced) + 1);
  if (begin >= end)
    return {};
  return {begin, end, shares_[bucket] * (end - begin) / (end - first)};
}

double answer_length::mean_left(std::int32_t produced) const {
  if (produced >= most_)
    return 0;
  double all = 0, tokens = 0;
  for (std::size_t i = 0; i < buckets; ++i) {
    const auto rest = rest_of(i, produced);
    all += rest.share;
    tokens += rest.share * ((rest.first + rest.end - 1) / 2 - produced);
  }
  return all > 0 ? tokens / all : 1; // longer than was thought possible: its next token
}

double answer_length::quantile_left(double share, std::int32_t produced) const {
  if (produced >= most_)
    return 0;
  double all = 0;
  for (std::size_t i = 0; i < buckets; ++i)
    all += rest_of(i, produced).share;
  double wanted = share * all;
  for (std::size_t i = 0; i < buckets; ++i) {
    const auto rest = rest_of(i, produced);
    if (rest.share > 0 && wanted <= rest.share)
      return rest.first + (rest.end - 1 - rest.first) * wanted / rest.share - produced;
    wanted -= rest.share;
  }
  return all > 0 ? most_ - produced : 1;
}

} // namespace troupe
