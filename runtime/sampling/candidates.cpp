#include "runtime/sampling/candidates.hpp"

#include "runtime/sampling/sampler.hpp"
#include "runtime/sampling/vector_passes.hpp"
#include "runtime/support/error.hpp"

#include <cmath>
#include <functional>
#include <numeric>

namespace troupe {

using sampling::block;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// floor(a * b / 2^64)
std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
}

} // namespace

void candidates::reset(std::span<const float> logits, float factor) {
  row_ = logits;
  factor_ = factor;
  listed_ = false;
  block_maxima_.resize((row_.size() + block - 1) / block);
  sampling::block_maxima(row_.data(), row_.size(), block_maxima_.data());
  if (factor_ != 1) // rounding keeps the order
    sampling::scale(block_maxima_.data(), block_maxima_.size(), factor_, block_maxima_.data());
  max_ = block_maxima_.empty() ? -infinity : *std::max_element(block_maxima_.begin(), block_maxima_.end());
  if (max_ == -infinity)
    throw failure(errc::internal, nothing_to_choose);
  if (max_ == infinity) {
    max_ = std::numeric_limits<float>::max();
    clamped_.resize(row_.size());
    std::transform(row_.begin(), row_.end(), clamped_.begin(), [this](float x) { return std::min(x * factor_, max_); });
    row_ = clamped_;
    factor_ = 1;
    for (float& x : block_maxima_)
      x = std::min(x, max_);
  }
}

token_id candidates::likeliest() const {
  const auto found = std::find(block_maxima_.begin(), block_maxima_.end(), max_);
  const auto start = row_.begin() + (found - block_maxima_.begin()) * static_cast<std::ptrdiff_t>(block);
  const auto most = std::find_if(start, row_.end(), [this](float x) { return x * factor_ == max_; });
  return static_cast<token_id>(most - row_.begin());
}

void candidates::list(float floor) {
  listed_ = true;
  ids_.resize(std::max(ids_.size(), row_.size()));
  logits_.resize(ids_.size());
  count_ = sampling::select(row_.data(), row_.size(), factor_, block_maxima_.data(), floor, ids_.data(),
                            logits_.data());
}

void candidates::narrow(float floor) {
  if (listed_)
    keep_if([floor](token_id, float logit) { return logit >= floor; });
  else
    list(floor);
}

float candidates::narrow_to_weight(std::uint64_t enough, float least) {
  constexpr float step = 4; // of a trained model's row of 150k tokens one or two steps list some hundreds
  if (!listed_)
    for (float above = max_ - step; above > least; above -= step) {
      list(above);
      const auto listed = weights();
      if (std::accumulate(listed.begin(), listed.end(), std::uint64_t{0}) >= enough)
        return above;
      listed_ = false;
    }
  narrow(least);
  return least;
}

void candidates::restore(std::span<const std::pair<token_id, float>> tokens) {
  if (!listed_)
    return;
  for (const auto& [id, logit] : tokens) {
    const auto end = ids_.begin() + static_cast<std::ptrdiff_t>(count_);
    const auto at = std::lower_bound(ids_.begin(), end, id) - ids_.begin();
    if (static_cast<std::size_t>(at) < count_ && ids_[static_cast<std::size_t>(at)] == id)
      continue;
    ids_.insert(ids_.begin() + at, id);
    logits_.insert(logits_.begin() + at, logit);
    ++count_;
    max_ = std::max(max_, logit);
  }
}

float candidates::kth_largest(std::size_t k) {
  const auto at = static_cast<std::ptrdiff_t>(k) - 1;
  if (!listed_) {
    // The k-th largest of the blocks' maxima is no larger than the k-th largest logit, and close to it.
    values_ = block_maxima_;
    if (k <= values_.size())
      std::nth_element(values_.begin(), values_.begin() + at, values_.end(), std::greater<>());
    narrow(k <= values_.size() ? values_[k - 1] : -infinity);
  }
  if (k > count_)
    return -infinity;
  values_.assign(logits_.begin(), logits_.begin() + static_cast<std::ptrdiff_t>(count_));
  std::nth_element(values_.begin(), values_.begin() + at, values_.end(), std::greater<>());
  return values_[k - 1];
}

std::uint64_t candidates::total_weight() {
  if (listed_) {
    weights();
  } else {
    weights_.resize(block_maxima_.size());
    sampling::block_weights(row_.data(), row_.size(), factor_, block_maxima_.data(), max_, weights_.data());
  }
  return std::accumulate(weights_.begin(), weights_.end(), std::uint64_t{0});
}

std::pair<std::uint64_t, std::uint64_t> candidates::bound_total_weight() {
  if (listed_) {
    const auto total = total_weight();
    return {total, total};
  }
  constexpr float light = -22; // 150k such tokens weigh 2^-15 together
  const float floor = max_ + light;
  const auto above = sampling::weigh_above(row_.data(), row_.size(), factor_, block_maxima_.data(), max_, floor);
  auto most = sampling::weight(floor, max_);
  most += (most >> 20) + 1; // weights grow with logits, up to the last bits of exp
  return {above.weight, above.weight + (row_.size() - above.elements) * most};
}

double candidates::log_total() {
  return std::log(static_cast<double>(total_weight()) / static_cast<double>(sampling::weight_one));
}

std::span<const std::uint64_t> candidates::weights() {
  weights_.resize(count_);
  sampling::token_weights(logits_.data(), count_, max_, weights_.data());
  return weights_;
}

token_id candidates::sample(std::uint64_t bits) {
  std::uint64_t offset = multiply_high(bits, total_weight());
  std::size_t i = 0;
  for (; offset >= weights_[i]; ++i)
    offset -= weights_[i];
  if (listed_)
    return ids_[i];
  i *= block;
  for (std::uint64_t w; offset >= (w = sampling::weight(row_[i] * factor_, max_)); ++i)
    offset -= w;
  return static_cast<token_id>(i);
}

std::uint64_t share_of(std::uint64_t total, float p) {
  const auto parts = static_cast<std::uint64_t>(std::llround(static_cast<double>(p) * 0x1p32));
  const auto product = static_cast<unsigned __int128>(total) * parts + 0xffffffffu;
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(product >> 32));
}

} // namespace troupe
