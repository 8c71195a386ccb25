#include "runtime/sampling/vector_passes.hpp"

#include "runtime/sampling/keyed_hash.hpp"

// GCC resolves clones before the sanitizers are initialised, so sanitizer builds run the portable code.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&               \
  !defined(__SANITIZE_THREAD__)
#define TROUPE_VECTOR_CLONES [[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
#define TROUPE_VECTOR_VERSIONS 1
#include <immintrin.h>
#else
#define TROUPE_VECTOR_CLONES
#endif

namespace troupe::sampling {

namespace {

constexpr std::int32_t lowest_key = std::numeric_limits<std::int32_t>::min();
constexpr std::int32_t infinity_bits = 0x7f800000;

// Floats as integers of the same order, NaNs lowest. The compiler may reorder, and so vectorise, a maximum of integers.
inline std::int32_t ordered_key(float x) {
  const auto bits = std::bit_cast<std::int32_t>(x);
  const std::int32_t not_a_number = -static_cast<std::int32_t>((bits & 0x7fffffff) > infinity_bits); // all ones or zero
  return ((bits ^ ((bits >> 31) & 0x7fffffff)) & ~not_a_number) | (lowest_key & not_a_number);
}

// One term of mean_log_cosh. In halves: ln cosh(d / 2) = |d| / 2 + ln(1 + exp(-|d|)) - ln 2.
inline float log_cosh_term(float a, float b) {
  const auto apart = std::bit_cast<float>(std::bit_cast<std::uint32_t>(a - b) & 0x7fffffffu);
  const float mean = 0.5f * (exp_nonpositive(a) + exp_nonpositive(b));
  return mean * (0.5f * apart + log_one_plus(exp_nonpositive(apart)) - 0.693147181f);
}

inline std::int32_t larger(std::int32_t a, std::int32_t b) { return a > b ? a : b; }

inline float from_key(std::int32_t key) {
  const auto x = std::bit_cast<float>(key ^ ((key >> 31) & 0x7fffffff));
  return x >= -std::numeric_limits<float>::infinity() ? x : -std::numeric_limits<float>::infinity();
}

} // namespace

TROUPE_VECTOR_CLONES
void scale(const float* x, std::size_t n, float factor, float* y) {
  for (std::size_t i = 0; i < n; ++i)
    y[i] = x[i] * factor;
}

TROUPE_VECTOR_CLONES
void keep_allowed(const float* x, std::size_t n, const std::uint64_t* bits, std::size_t words, float* y) {
  constexpr float never = -std::numeric_limits<float>::infinity();
  for (std::size_t start = 0; start < n; start += 64) {
    const auto word = start / 64 < words ? bits[start / 64] : 0;
    const auto end = start + 64 < n ? start + 64 : n;
    if (word == 0 || end - start < 64) {
      for (auto i = start; i < end; ++i)
        y[i] = (word >> (i - start) & 1) != 0 ? x[i] : never;
    } else {
      for (std::size_t i = 0; i < 64; ++i)
        y[start + i] = (word >> i & 1) != 0 ? x[start + i] : never;
    }
  }
}

TROUPE_VECTOR_CLONES
void block_maxima(const float* x, std::size_t n, float* maxima) {
  std::size_t start = 0;
  for (; start + block <= n; start += block) {
    std::int32_t best = lowest_key;
    for (std::size_t i = 0; i < block; ++i)
      best = larger(best, ordered_key(x[start + i]));
    *maxima++ = from_key(best);
  }
  if (start < n) {
    std::int32_t best = lowest_key;
    for (std::size_t i = start; i < n; ++i)
      best = larger(best, ordered_key(x[i]));
    *maxima = from_key(best);
  }
}

TROUPE_VECTOR_CLONES
void token_weights(const float* x, std::size_t n, float max, std::uint64_t* weights) {
  for (std::size_t i = 0; i < n; ++i)
    weights[i] = weight(x[i], max);
}

TROUPE_VECTOR_CLONES
void block_weights(const float* x, std::size_t n, float factor, const float* maxima, float max, std::uint64_t* sums) {
  std::size_t start = 0;
  for (; start + block <= n; start += block) {
    std::uint64_t sum = 0;
    if (*maxima++ - max > weightless)
      for (std::size_t i = 0; i < block; ++i)
        sum += weight(x[start + i] * factor, max);
    *sums++ = sum;
  }
  if (start < n) {
    std::uint64_t sum = 0;
    for (std::size_t i = start; i < n; ++i)
      sum += weight(x[i] * factor, max);
    *sums = sum;
  }
}

namespace {

// Writes the elements of x * factor that are at least `floor` in order; returns their number. `out` has room for 16 more.
#ifdef TROUPE_VECTOR_VERSIONS
[[gnu::target("arch=x86-64-v4")]] std::size_t pick(const float* x, std::size_t n, float factor, float floor,
                                                   float* out) {
  const auto factors = _mm512_set1_ps(factor), floors = _mm512_set1_ps(floor);
  std::size_t picked = 0;
  for (std::size_t i = 0; i < n; i += 16) {
    const auto there = static_cast<__mmask16>(n - i < 16 ? (1u << (n - i)) - 1 : 0xffffu);
    const auto values = _mm512_mul_ps(_mm512_maskz_loadu_ps(there, x + i), factors);
    const auto wanted = _mm512_mask_cmp_ps_mask(there, values, floors, _CMP_GE_OQ);
    _mm512_storeu_ps(out + picked, _mm512_maskz_compress_ps(wanted, values));
    picked += static_cast<std::size_t>(std::popcount(static_cast<unsigned>(wanted)));
  }
  return picked;
}

[[gnu::target("default")]]
#endif
std::size_t
pick(const float* x, std::size_t n, float factor, float floor, float* out) {
  std::size_t picked = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const float value = x[i] * factor;
    out[picked] = value;
    picked += value >= floor; // no branch
  }
  return picked;
}

TROUPE_VECTOR_CLONES
std::uint64_t weigh(const float* x, std::size_t n, float max) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < n; ++i)
    sum += weight(x[i], max);
  return sum;
}

} // namespace

weighed weigh_above(const float* x, std::size_t n, float factor, const float* maxima, float max, float floor) {
  constexpr std::size_t most = 4096; // in the first cache
  float picked[most + 16];
  weighed found;
  std::size_t held = 0;
  for (std::size_t start = 0; start < n; start += block) {
    if (maxima[start / block] >= floor)
      held += pick(x + start, n - start < block ? n - start : block, factor, floor, picked + held);
    if (held > most - block || start + block >= n) {
      found.weight += weigh(picked, held, max);
      found.elements += held;
      held = 0;
    }
  }
  return found;
}

TROUPE_VECTOR_CLONES
std::size_t select(const float* x, std::size_t n, float factor, const float* maxima, float floor, std::int32_t* indices,
                   float* values) {
  std::size_t selected = 0;
  for (std::size_t start = 0; start < n; start += block) {
    if (maxima[start / block] < floor)
      continue;
    for (std::size_t word = start; word < start + block && word < n; word += 64) {
      std::uint64_t wanted = 0;
      if (word + 64 <= n) {
        for (std::size_t i = 0; i < 64; ++i)
          wanted |= static_cast<std::uint64_t>(x[word + i] * factor >= floor) << i;
      } else {
        for (std::size_t i = 0; i < n - word; ++i)
          wanted |= static_cast<std::uint64_t>(x[word + i] * factor >= floor) << i;
      }
      for (; wanted != 0; wanted &= wanted - 1) {
        const auto at = word + static_cast<std::size_t>(std::countr_zero(wanted));
        indices[selected] = static_cast<std::int32_t>(at);
        values[selected++] = x[at] * factor;
      }
    }
  }
  return selected;
}

TROUPE_VECTOR_CLONES
double mean_log_cosh(const float* x, float x_most, float x_total, const float* y, float y_most, float y_total,
                     std::size_t n) {
  constexpr std::size_t lanes = 8;
  double sums[lanes] = {};
  for (std::size_t start = 0; start < n; start += block) {
    float terms[block];
    const auto size = n - start < block ? n - start : block;
    if (size == block) {
      for (std::size_t i = 0; i < block; ++i)
        terms[i] = log_cosh_term(x[start + i] - x_most - x_total, y[start + i] - y_most - y_total);
    } else {
      for (std::size_t i = 0; i < block; ++i)
        terms[i] = i < size ? log_cosh_term(x[start + i] - x_most - x_total, y[start + i] - y_most - y_total) : 0.f;
    }
    for (std::size_t i = 0; i < block; i += lanes)
      for (std::size_t lane = 0; lane < lanes; ++lane)
        sums[lane] += static_cast<double>(terms[i + lane]);
  }
  double total = 0;
  for (const double sum : sums)
    total += sum;
  return total;
}

TROUPE_VECTOR_CLONES
void add_where_below(float* x, std::size_t n, std::uint64_t seed, std::uint32_t limit, float delta) {
  const auto low = static_cast<std::uint32_t>(seed), high = static_cast<std::uint32_t>(seed >> 32);
  for (std::size_t i = 0; i < n; ++i) {
    const auto value = keyed::mix(keyed::mix(static_cast<std::uint32_t>(i) ^ low) ^ high);
    x[i] += value < limit ? delta : 0.f;
  }
}

TROUPE_VECTOR_CLONES
void add_where_least_below(float* x, std::size_t n, const std::uint64_t* anchors, std::size_t count,
                           std::uint32_t limit, float delta) {
  using keyed::mix;
  for (std::size_t start = 0; start < n; start += block) {
    std::uint32_t least[block], low[block], high[block]; // of each id: its least value, and the seed of that
    const auto size = n - start < block ? n - start : block;
    for (std::size_t i = 0; i < block; ++i)
      least[i] = ~0u, low[i] = high[i] = 0;
    for (std::size_t a = 0; a < count; ++a) {
      const auto a_low = static_cast<std::uint32_t>(anchors[a]), a_high = static_cast<std::uint32_t>(anchors[a] >> 32);
      for (std::size_t i = 0; i < block; ++i) {
        const auto value = mix(mix(static_cast<std::uint32_t>(start + i) ^ a_low) ^ a_high);
        const bool wins = value <= least[i];
        least[i] = wins ? value : least[i];
        low[i] = wins ? ~a_low : low[i];
        high[i] = wins ? ~a_high : high[i];
      }
    }
    for (std::size_t i = 0; i < size; ++i) {
      const auto value = mix(mix(static_cast<std::uint32_t>(start + i) ^ low[i]) ^ high[i]);
      x[start + i] += value < limit ? delta : 0.f;
    }
  }
}

} // namespace troupe::sampling
