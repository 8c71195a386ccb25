// Shared by kernel tests: random data in every storage type, and a comparison that prints the worst element.
#pragma once

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/formats/quantise_groups.hpp"
#include "tests/kernels/reference.hpp"
#include "tests/sanitized.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace troupe::kernels::testing {

inline constexpr dtype compute_types[] = {dtype::f32, dtype::bf16};

inline std::unique_ptr<backend> make_backend(isa target, int threads = 2, std::size_t cache = 0) {
  cpu_options options;
  options.threads = threads;
  options.target = target;
  options.cache = cache;
  return make_cpu_backend(options);
}

/// The targets to test. Under ThreadSanitizer only the best one: kernels are a hundred times slower there, and races do
/// not depend on the target. Programs with emulated sets (tests/emulation) leave `portable` to the others.
inline std::vector<isa> tested_isas() {
  auto tested = available_isas();
  if (troupe::testing::thread_sanitized())
    tested.erase(tested.begin(), tested.end() - 1);
  const bool emulated = tested.size() > 1 && tested[1] > isa::avx2; // every real list has avx2 or neon here
  if (emulated)
    tested.erase(tested.begin());
  return tested;
}

/// Rounding unit of one operation in `type`.
inline double unit(dtype type) { return type == dtype::bf16 ? 0x1p-8 : type == dtype::f16 ? 0x1p-11 : 0x1p-24; }

struct generator {
  std::mt19937 engine;
  explicit generator(unsigned seed = 1) : engine(seed) {}

  int below(int n) { return static_cast<int>(engine() % static_cast<unsigned>(n)); }
  std::vector<float> normal(std::size_t n, float deviation = 1) {
    std::normal_distribution<float> sample(0, deviation);
    std::vector<float> x(n);
    for (float& v : x)
      v = sample(engine);
    return x;
  }
};

/// Byte offsets of a block's f16 scales and minima, but for those that `set_exponent` sets.
inline std::vector<std::size_t> f16_offsets(weight_format f) {
  switch (f) {
    case weight_format::q4_1:
    case weight_format::q5_1:
    case weight_format::q4_k:
    case weight_format::q5_k: return {0, 2};
    case weight_format::q6_k: return {208};
    case weight_format::q2_k: return {80, 82};
    case weight_format::q3_k: return {108};
    case weight_format::tq1_0: return {52};
    case weight_format::tq2_0: return {64};
    case weight_format::iq1_m:
    case weight_format::nvfp4:
    case weight_format::mxfp4: return {};
    default: return {0};
  }
}

/// Makes the exponents of scales that are not in f16, or not in one place, moderate: 2^-13 to 2^-6.
inline void set_exponent(weight_format f, std::uint8_t* block) {
  if (f == weight_format::mxfp4)
    block[0] = static_cast<std::uint8_t>(115 + block[0] % 8);
  for (int i = 0; f == weight_format::nvfp4 && i < 4; ++i)
    block[i] %= 16;
  if (f == weight_format::iq1_m) { // 2^-8
    block[55] = static_cast<std::uint8_t>((block[55] & 0x8f) | 0x10);
    block[53] |= 0xc0;
  }
}

/// Numbers as stored in a checkpoint or an activation tensor.
struct numbers {
  dtype type = dtype::f32;
  std::vector<float> wide;
  std::vector<std::uint16_t> narrow;

  numbers() = default;
  numbers(dtype type, const std::vector<float>& from) : type(type) {
    if (type == dtype::f32)
      wide = from;
    else
      for (const float x : from)
        narrow.push_back(type == dtype::bf16 ? reference::to_bf16(x) : reference::to_f16(x));
  }
  numbers(dtype type, std::size_t n) : numbers(type, std::vector<float>(n, std::nanf(""))) {}

  std::size_t size() const { return type == dtype::f32 ? wide.size() : narrow.size(); }
  void* data() { return type == dtype::f32 ? static_cast<void*>(wide.data()) : narrow.data(); }
  const void* data() const { return const_cast<numbers*>(this)->data(); }
  double operator[](std::size_t i) const { return reference::value(data(), type, i); }
  std::vector<double> values() const {
    std::vector<double> x(size());
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = (*this)[i];
    return x;
  }
  bool operator==(const numbers& other) const {
    return type == other.type && size() == other.size() &&
      std::memcmp(data(), other.data(), size() * size_of(type)) == 0;
  }
  /// `count` elements from `first`.
  numbers slice(std::size_t first, std::size_t count) const {
    numbers part;
    part.type = type;
    if (type == dtype::f32)
      part.wide.assign(wide.begin() + first, wide.begin() + first + count);
    else
      part.narrow.assign(narrow.begin() + first, narrow.begin() + first + count);
    return part;
  }
  tensor rows(std::size_t count) {
    const std::size_t cols = count == 0 ? 0 : size() / count;
    return {data(), type, count, cols, cols};
  }
};

/// The type that weights are stored as, and how they are quantised at packing: of the kinds that skip zeros.
struct storage {
  dtype type;
  quantization how = quantization::none;

  storage(dtype type, quantization how = quantization::none) : type(type), how(how) {}

  std::string name() const {
    return std::string(to_string(type)) + (how == quantization::none ? "" : std::string(" to ") + to_string(how));
  }
};

inline const storage storages[] = {
  dtype::f32, dtype::f16, dtype::bf16, {dtype::f32, quantization::fp8}, {dtype::bf16, quantization::fp8}};

/// Checks |got - want| <= tolerance element by element, and reports the worst.
inline void check_close(const std::vector<double>& got, const std::vector<double>& want,
                        const std::vector<double>& tolerance, const std::string& what) {
  REQUIRE(got.size() == want.size());
  std::size_t worst = 0;
  double worst_ratio = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(got[i] - want[i]);
    const double ratio = error == 0 ? 0 : std::isnan(error) ? INFINITY : error / tolerance[i];
    if (ratio > worst_ratio) {
      worst_ratio = ratio;
      worst = i;
    }
  }
  if (got.empty())
    return;
  CHECK_MESSAGE(worst_ratio <= 1, what, ": element ", worst, " is ", got[worst], ", expected ", want[worst], " +- ",
                tolerance[worst]);
}

} // namespace troupe::kernels::testing
