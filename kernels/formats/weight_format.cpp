#include "kernels/formats/weight_format.hpp"

#include "kernels/formats/e4m3.hpp"
#include "kernels/formats/quantise_groups.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace troupe::kernels {

std::uint16_t to_f16(float x) {
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const float magnitude = std::min(std::abs(x), 65504.0f);
  if (std::isnan(x))
    return 0x7e00;
  if (magnitude < 0x1p-14f) // rounds up into the normal numbers, as the bits are consecutive
    return sign | static_cast<std::uint16_t>(std::nearbyint(magnitude * 0x1p24f));
  const auto bits = std::bit_cast<std::uint32_t>(magnitude);
  const std::uint32_t rounded = (bits + 0xfff + (bits >> 13 & 1)) >> 13;
  return sign | static_cast<std::uint16_t>(rounded - (112u << 10));
}

namespace {

/// To the nearest integer, ties to even, of small numbers.
float round_even(float x) { return x + 0x1.8p23f - 0x1.8p23f; }

std::uint16_t load_u16(const std::uint8_t* p) { return static_cast<std::uint16_t>(p[0] | p[1] << 8); }

/// Two codes of 4 bits in a byte: inputs 0 to 15 are the low halves of 16 bytes, 16 to 31 the high ones.
void split_nibbles(weight_group& to, const std::uint8_t* from) {
  for (int i = 0; i < 16; ++i) {
    to.codes[i] = from[i] & 15;
    to.codes[i + 16] = from[i] >> 4;
  }
}

/// Bit i of `bits` is the fifth bit of code i.
void add_fifth_bits(weight_group& to, const std::uint8_t* bits) {
  for (int i = 0; i < 32; ++i)
    to.codes[i] |= (bits[i / 8] >> i % 8 & 1) << 4;
}

/// q4_k and q5_k: d, dmin, eight scales and minima of 6 bits in 12 bytes, [32 bytes of fifth bits,] 128 bytes of
/// nibbles, of which 32 bytes hold one group in the low and the next in the high halves.
weight_group super_group(const std::uint8_t* block, int index, bool five_bits) {
  weight_group to;
  to.d = load_u16(block);
  to.m = load_u16(block + 2);
  const std::uint8_t* packed = block + 4;
  if (index < 4) {
    to.scales[0] = packed[index] & 63;
    to.minimum = packed[index + 4] & 63;
  } else {
    to.scales[0] = (packed[index + 4] & 15) | packed[index - 4] >> 6 << 4;
    to.minimum = packed[index + 4] >> 4 | packed[index] >> 6 << 4;
  }
  to.scales[1] = to.scales[0];
  to.minimum = -to.minimum;
  const std::uint8_t* nibbles = block + (five_bits ? 48 : 16) + index / 2 * 32;
  for (int i = 0; i < 32; ++i) {
    to.codes[i] = nibbles[i] >> index % 2 * 4 & 15;
    if (five_bits)
      to.codes[i] |= (block[16 + i] >> index & 1) << 4;
  }
  return to;
}

/// q6_k: 128 bytes of low nibbles, 64 bytes of upper bit pairs, 16 scales of 16 inputs each, d. Each half of the 256
/// inputs has 64 bytes of nibbles and 32 of pairs.
weight_group six_bit_group(const std::uint8_t* block, int index) {
  weight_group to;
  to.zero = 32;
  to.d = load_u16(block + 208);
  to.scales[0] = static_cast<std::int8_t>(block[192 + 2 * index]);
  to.scales[1] = static_cast<std::int8_t>(block[193 + 2 * index]);
  const int half = index / 4, quarter = index % 4;
  const std::uint8_t* low = block + half * 64 + quarter % 2 * 32;
  const std::uint8_t* high = block + 128 + half * 32;
  for (int i = 0; i < 32; ++i)
    to.codes[i] = (low[i] >> quarter / 2 * 4 & 15) | (high[i] >> quarter * 2 & 3) << 4;
  return to;
}

// Groups are quantised several at a time, each in a lane of its own, in which sums keep their order: the bits are those
// of one group alone.

constexpr std::size_t group_lanes = 8;
typedef float lane_floats __attribute__((vector_size(4 * group_lanes)));

/// What is known of the groups of a batch: weight i of lane l is weights[i][l].
struct int4_batch {
  lane_floats weights[group_inputs];
  lane_floats codes[group_inputs]; // of the current fit
  lane_floats scale, minimum;      // the line (code, weight) that is tried next
};

/// Rounds the fits to f16, as they will be stored, and chooses the nearest codes; `error` is their squared error.
[[gnu::always_inline]] inline void choose_codes(int4_batch& batch, std::uint16_t (&d)[group_lanes],
                                                std::uint16_t (&m)[group_lanes], lane_floats& error) {
  lane_floats scale, minimum, inverse;
  for (std::size_t l = 0; l < group_lanes; ++l) {
    scale[l] = from_f16(d[l] = to_f16(batch.scale[l]));
    minimum[l] = from_f16(m[l] = to_f16(batch.minimum[l]));
    inverse[l] = scale[l] != 0 ? 1 / scale[l] : 0;
  }
  const lane_floats none = {}, most = none + 15, magic = none + 0x1.8p23f;
  error = none;
  for (std::size_t i = 0; i < group_inputs; ++i) {
    lane_floats code = (batch.weights[i] - minimum) * inverse;
    code = code > most ? most : code;
    code = (code < none ? none : code) + magic - magic; // to nearest, ties to even
    const lane_floats difference = code * scale + minimum - batch.weights[i];
    error += difference * difference;
    batch.codes[i] = code;
  }
}

/// The lines with the least squared error; the fits stay where all codes are equal.
[[gnu::always_inline]] inline void fit_lines(int4_batch& batch) {
  lane_floats codes_sum = {}, squares = {}, sum = {}, products = {};
  for (std::size_t i = 0; i < group_inputs; ++i) {
    codes_sum += batch.codes[i];
    squares += batch.codes[i] * batch.codes[i];
    sum += batch.weights[i];
    products += batch.codes[i] * batch.weights[i];
  }
  constexpr auto n = static_cast<float>(group_inputs);
  const lane_floats determinant = n * squares - codes_sum * codes_sum;
  const lane_floats scale = (n * products - codes_sum * sum) / determinant;
  const lane_floats minimum = (squares * sum - codes_sum * products) / determinant;
  const auto found = !(determinant <= lane_floats{});
  batch.scale = found ? scale : batch.scale;
  batch.minimum = found ? minimum : batch.minimum;
}

/// At most group_lanes groups.
[[gnu::always_inline]] inline void quantise_batch(const float* weights, std::size_t groups, weight_group* to) {
  int4_batch batch = {};
  float low[group_lanes], high[group_lanes];
  lane_floats least;
  for (std::size_t l = 0; l < group_lanes; ++l) {
    const float* group = weights + (l < groups ? l : 0) * group_inputs;
    for (std::size_t i = 0; i < group_inputs; ++i)
      batch.weights[i][l] = group[i];
    const auto [lowest, highest] = std::minmax_element(group, group + group_inputs);
    low[l] = *lowest;
    high[l] = *highest;
    least[l] = std::numeric_limits<float>::infinity();
  }
  for (std::size_t l = 0; l < groups; ++l)
    to[l] = {};
  for (const float steps : {15.0f, 14.5f, 14.0f, 15.5f, 16.0f, 13.0f}) { // between the lowest and the highest weight
    for (std::size_t l = 0; l < group_lanes; ++l) {
      batch.scale[l] = (high[l] - low[l]) / steps;
      batch.minimum[l] = low[l] + (high[l] - low[l] - 15 * batch.scale[l]) / 2;
    }
    for (int round = 0; round < 3; ++round) {
      std::uint16_t d[group_lanes], m[group_lanes];
      lane_floats error;
      choose_codes(batch, d, m, error);
      for (std::size_t l = 0; l < groups; ++l)
        if (error[l] < least[l]) {
          least[l] = error[l];
          to[l].minimum = 1;
          to[l].d = d[l];
          to[l].m = m[l];
          for (std::size_t i = 0; i < group_inputs; ++i)
            to[l].codes[i] = static_cast<std::uint8_t>(batch.codes[i][l]);
        }
      fit_lines(batch);
    }
  }
  for (std::size_t l = 0; l < groups; ++l) {
    const float* group = weights + l * group_inputs;
    if (!std::all_of(group, group + group_inputs, [](float x) { return std::isfinite(x); })) {
      to[l] = {};
      to[l].d = 0x7e00; // it stays NaN
    }
  }
}

void quantise_batch_anywhere(const float* weights, std::size_t groups, weight_group* to) {
  quantise_batch(weights, groups, to);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] void quantise_batch_avx2(const float* weights, std::size_t groups, weight_group* to) {
  quantise_batch(weights, groups, to);
}
#endif

} // namespace

const char* to_string(dtype t) { return to_string(format_of(t)); }

const char* to_string(weight_format f) {
  switch (f) {
    case weight_format::f32: return "f32";
    case weight_format::f16: return "f16";
    case weight_format::bf16: return "bf16";
    case weight_format::q8_0: return "q8_0";
    case weight_format::q4_0: return "q4_0";
    case weight_format::q4_1: return "q4_1";
    case weight_format::q5_0: return "q5_0";
    case weight_format::q5_1: return "q5_1";
    case weight_format::q4_k: return "q4_k";
    case weight_format::q5_k: return "q5_k";
    case weight_format::q6_k: return "q6_k";
    case weight_format::fp8: return "fp8";
  }
  return "unknown";
}

const char* to_string(quantization how) {
  switch (how) {
    case quantization::none: return "none";
    case quantization::int8: return "int8";
    case quantization::int4: return "int4";
    case quantization::fp8: return "fp8";
  }
  return "unknown";
}

std::size_t block_inputs(weight_format f) { return !has_groups(f) ? 1 : f < weight_format::q4_k ? 32 : 256; }

std::size_t block_bytes(weight_format f) {
  switch (f) {
    case weight_format::f32: return 4;
    case weight_format::f16:
    case weight_format::bf16: return 2;
    case weight_format::q8_0: return 34;
    case weight_format::q4_0: return 18;
    case weight_format::q4_1: return 20;
    case weight_format::q5_0: return 22;
    case weight_format::q5_1: return 24;
    case weight_format::q4_k: return 144;
    case weight_format::q5_k: return 176;
    case weight_format::q6_k: return 210;
    case weight_format::fp8: return 1;
  }
  return 0;
}

std::size_t row_bytes(weight_format f, std::size_t cols) {
  return cols / block_inputs(f) * block_bytes(f) + (f == weight_format::fp8 ? sizeof(float) : 0);
}

weight_group stored_group(weight_format f, const void* row, std::size_t index) {
  const std::size_t groups = block_inputs(f) / group_inputs; // of a block
  const auto* block = static_cast<const std::uint8_t*>(row) + index / groups * block_bytes(f);
  const int part = static_cast<int>(index % groups);
  weight_group to;
  to.d = load_u16(block);
  const bool has_minimum = f == weight_format::q4_1 || f == weight_format::q5_1;
  if (has_minimum) {
    to.m = load_u16(block + 2);
    to.minimum = 1;
    block += 2;
  }
  switch (f) {
    case weight_format::q4_k: return super_group(block, part, false);
    case weight_format::q5_k: return super_group(block, part, true);
    case weight_format::q6_k: return six_bit_group(block, part);
    case weight_format::q4_0:
    case weight_format::q4_1:
      split_nibbles(to, block + 2);
      to.zero = has_minimum ? 0 : 8;
      break;
    case weight_format::q5_0:
    case weight_format::q5_1:
      split_nibbles(to, block + 6);
      add_fifth_bits(to, block + 2);
      to.zero = has_minimum ? 0 : 16;
      break;
    default: // q8_0: signed
      to.zero = 128;
      for (std::size_t i = 0; i < group_inputs; ++i)
        to.codes[i] = block[2 + i] ^ 0x80;
  }
  return to;
}

weight_group quantise_int8(const float* weights) {
  float largest = 0;
  bool finite = true;
  for (std::size_t i = 0; i < group_inputs; ++i) {
    largest = std::max(largest, std::abs(weights[i]));
    finite = finite && std::isfinite(weights[i]);
  }
  weight_group to;
  to.zero = 128;
  to.d = finite ? to_f16(largest / 127) : 0x7e00; // a group that is not finite stays NaN
  const float scale = from_f16(to.d);
  for (std::size_t i = 0; i < group_inputs; ++i) {
    const float code = scale > 0 ? std::clamp(weights[i] / scale, -127.0f, 127.0f) : 0;
    to.codes[i] = static_cast<std::uint8_t>(128 + static_cast<int>(round_even(code)));
  }
  return to;
}

void quantise_int4(const float* weights, std::size_t groups, weight_group* to) {
  auto batch = quantise_batch_anywhere;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2"))
    batch = quantise_batch_avx2;
#endif
  for (std::size_t first = 0; first < groups; first += group_lanes)
    batch(weights + first * group_inputs, std::min(group_lanes, groups - first), to + first);
}

weight_group quantise_int4(const float* weights) {
  weight_group group;
  quantise_int4(weights, 1, &group);
  return group;
}

float from_f16(std::uint16_t h) {
  const auto magnitude = std::bit_cast<float>(std::uint32_t(h & 0x7fff) << 13) * 0x1p112f; // also normalises denormals
  const std::uint32_t special = (h & 0x7c00) == 0x7c00 ? 0x7f800000 : 0;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | special | std::uint32_t(h & 0x8000) << 16);
}

void dequantise(const weight_group& group, float* weights) {
  const float d = from_f16(group.d);
  const float minimum = -(from_f16(group.m) *
                          static_cast<float>(-group.minimum)); // none: -0, which keeps a zero's sign
  for (std::size_t i = 0; i < group_inputs; ++i)
    weights[i] = d * group.scales[i / 16] * static_cast<float>(group.codes[i] - group.zero) + minimum;
}

float fp8_scale(const float* weights, std::size_t count) {
  float largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!std::isfinite(weights[i]))
      return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::abs(weights[i]));
  }
  return largest / largest_e4m3;
}

std::uint8_t to_fp8(float weight, float scale) { return scale > 0 ? to_e4m3(weight / scale) : 0; }

void expand(weight_format f, const void* row, std::size_t first, std::size_t count, float* weights) {
  if (f == weight_format::fp8) {
    float scale;
    std::memcpy(&scale, row, sizeof scale);
    const auto* codes = static_cast<const std::uint8_t*>(row) + sizeof scale + first;
    for (std::size_t i = 0; i < count; ++i)
      weights[i] = scale * from_e4m3(codes[i]);
    return;
  }
  for (std::size_t i = 0; i < count; i += group_inputs)
    dequantise(stored_group(f, row, (first + i) / group_inputs), weights + i);
}

} // namespace troupe::kernels
