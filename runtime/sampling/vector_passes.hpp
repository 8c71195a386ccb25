// Passes over a whole row of logits, compiled for several instruction sets and dispatched at load time. Results are the
// same bits on all of them and on any other IEEE device: elements are computed separately by single-rounded operations,
// and only integers are summed. Used by candidates and the logits processors.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace troupe::sampling {

/// Elements of a row that share one maximum and one weight sum.
inline constexpr std::size_t block = 128;

/// Below this distance from the largest logit a token weighs nothing: exp(-29) < 2^-41.
inline constexpr float weightless = -29.f;

/// The fixed-point weight of the likeliest token. 2^23 tokens of this weight still fit a 64-bit sum.
inline constexpr std::uint64_t weight_one = std::uint64_t{1} << 40;

/// exp(-|d|) within 2 ulp, clamped at exp(-40), also for NaN.
/// Cephes' expf with separately rounded multiplications and additions.
inline float exp_nonpositive(float d) {
  // Read as bits, negative floats grow with their magnitude and NaNs lie above; integers compare without a branch.
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(d) | 0x80000000u;
  constexpr std::uint32_t floor_bits = std::bit_cast<std::uint32_t>(-40.f);
  d = std::bit_cast<float>(bits < floor_bits ? bits : floor_bits);
  constexpr float magic = 12582912.f; // 1.5 * 2^23: adding it rounds to an integer, left in the low bits
  const float shifted = d * 1.44269504f + magic;
  const float n = shifted - magic;
  const float r = d - n * 0.693359375f - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.f;
  const std::int32_t exponent = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(magic) + 127;
  return p * std::bit_cast<float>(exponent << 23);
}

/// exp(logit - max) in units of 1 / weight_one, rounded to the nearest integer, ties to even. `max` is finite, and no
/// logit is above it. NaN weighs nothing.
inline std::uint64_t weight(float logit, float max) {
  // Adding 2^52 leaves the rounded integer in the low bits of a double.
  const double shifted = static_cast<double>(exp_nonpositive(logit - max)) * static_cast<double>(weight_one) + 0x1p52;
  return std::bit_cast<std::uint64_t>(shifted) - std::bit_cast<std::uint64_t>(0x1p52);
}

/// y = x * factor.
void scale(const float* x, std::size_t n, float factor, float* y);

/// y[i] = x[i] where bit i % 64 of bits[i / 64] is set, else minus infinity; bits beyond `words` are not set.
void keep_allowed(const float* x, std::size_t n, const std::uint64_t* bits, std::size_t words, float* y);

/// maxima[i] = the largest of elements [i * block, (i + 1) * block), ignoring NaNs; minus infinity for a block of NaNs.
void block_maxima(const float* x, std::size_t n, float* maxima);

/// weights[i] = weight(x[i], max).
void token_weights(const float* x, std::size_t n, float max, std::uint64_t* weights);

/// sums[i] = the sum of the weights of elements [i * block, (i + 1) * block) of x * factor, whose block maxima `maxima`
/// are.
void block_weights(const float* x, std::size_t n, float factor, const float* maxima, float max, std::uint64_t* sums);

struct weighed {
  std::uint64_t weight = 0; // of all together
  std::size_t elements = 0;
};

/// The elements of x * factor that are at least `floor`, whose block maxima `maxima` are.
weighed weigh_above(const float* x, std::size_t n, float factor, const float* maxima, float max, float floor);

/// Writes index and value of the elements of x * factor that are at least `floor`, in order; returns their number.
/// `maxima` are their block maxima; `indices` and `values` have room for n.
std::size_t select(const float* x, std::size_t n, float factor, const float* maxima, float floor, std::int32_t* indices,
                   float* values);

/// ln(1 + x) of x in [0, 1], within some ulp: the series of 2 artanh(x / (2 + x)).
inline float log_one_plus(float x) {
  const float t = x / (2.f + x), s = t * t;
  float sum = 1.f / 15;
  sum = sum * s + 1.f / 13;
  sum = sum * s + 1.f / 11;
  sum = sum * s + 1.f / 9;
  sum = sum * s + 1.f / 7;
  sum = sum * s + 1.f / 5;
  sum = sum * s + 1.f / 3;
  return 2.f * t * (sum * s + 1.f);
}

/// With p = exp(a) and q = exp(b), where a[i] = (x[i] - x_most) - x_total, and b the same of y: the sum of
/// (p + q) / 2 * ln cosh((a - b) / 2), which is the half of KL(m, p) + KL(m, q) with m = (p + q) / 2. Summed in eight
/// lanes, whatever the instruction set.
double mean_log_cosh(const float* x, float x_most, float x_total, const float* y, float y_most, float y_total,
                     std::size_t n);

/// x[i] += delta where keyed::value_of(i, seed) < limit.
void add_where_below(float* x, std::size_t n, std::uint64_t seed, std::uint32_t limit, float delta);

/// Each i has a seed: the complement of the one of `count` anchors that gives i the least value (the last of equal
/// ones). x[i] += delta where this seed gives i a value below limit.
void add_where_least_below(float* x, std::size_t n, const std::uint64_t* anchors, std::size_t count,
                           std::uint32_t limit, float delta);

} // namespace troupe::sampling
