#include "kernels/formats/weight_groups.hpp"

#include "kernels/formats/codebooks.hpp"
#include "kernels/formats/e4m3.hpp"
#include "kernels/formats/f16.hpp"
#include "kernels/formats/pruned_weights.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::kernels {

namespace {

/// q8_0: d, 32 signed codes.
weight_group byte_group(const std::uint8_t* block) {
  weight_group to;
  to.d = load_u16(block);
  to.zero = 128;
  for (std::size_t i = 0; i < group_inputs; ++i)
    to.codes[i] = block[2 + i] ^ 0x80;
  return to;
}

/// q4_0 to q5_1: d, [m,] [32 fifth bits,] 16 bytes of nibbles, of inputs 0 to 15 in the low halves.
weight_group nibble_group(const std::uint8_t* block, bool minimum, bool five_bits) {
  weight_group to;
  to.d = load_u16(block);
  block += 2;
  if (minimum) {
    to.m = load_u16(block);
    to.minima[0] = to.minima[1] = 1;
    block += 2;
  }
  const std::uint8_t* nibbles = block + (five_bits ? 4 : 0);
  for (int i = 0; i < 16; ++i) {
    to.codes[i] = nibbles[i] & 15;
    to.codes[i + 16] = nibbles[i] >> 4;
  }
  if (five_bits)
    for (int i = 0; i < 32; ++i)
      to.codes[i] |= (block[i / 8] >> i % 8 & 1) << 4;
  to.zero = minimum ? 0 : five_bits ? 16 : 8;
  return to;
}

/// q4_k and q5_k: d, dmin, eight scales and minima of 6 bits in 12 bytes, [32 bytes of fifth bits,] 128 bytes of
/// nibbles: each 32 bytes hold one group in the low halves and the next in the high ones.
weight_group super_group(const std::uint8_t* block, int index, bool five_bits) {
  weight_group to;
  to.d = load_u16(block);
  to.m = load_u16(block + 2);
  const std::uint8_t* packed = block + 4;
  if (index < 4) {
    to.scales[0] = packed[index] & 63;
    to.minima[0] = packed[index + 4] & 63;
  } else {
    to.scales[0] = (packed[index + 4] & 15) | packed[index - 4] >> 6 << 4;
    to.minima[0] = packed[index + 4] >> 4 | packed[index] >> 6 << 4;
  }
  to.scales[1] = to.scales[0];
  to.minima[0] = to.minima[1] = static_cast<std::int8_t>(-to.minima[0]);
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

/// The bit pairs of group `index` of the 64 bytes of a super-block.
void read_pairs(weight_group& to, const std::uint8_t* pairs, int index) {
  for (int i = 0; i < 32; ++i)
    to.codes[i] = pairs[index / 4 * 32 + i] >> index % 4 * 2 & 3;
}

/// q2_k: 16 bytes of scales and minima of 16 inputs each, 64 bytes of bit pairs, d, dmin.
weight_group two_bit_group(const std::uint8_t* block, int index) {
  weight_group to;
  to.d = load_u16(block + 80);
  to.m = load_u16(block + 82);
  for (int half = 0; half < 2; ++half) {
    const std::uint8_t packed = block[2 * index + half];
    to.scales[half] = static_cast<std::int8_t>(packed & 15);
    to.minima[half] = static_cast<std::int8_t>(-(packed >> 4));
  }
  read_pairs(to, block + 16, index);
  return to;
}

/// q3_k: 32 bytes of third bits, 64 bytes of bit pairs, 12 bytes of 16 scales of 16 inputs each (nibbles, then pairs of
/// upper bits), d.
weight_group three_bit_group(const std::uint8_t* block, int index) {
  weight_group to;
  to.zero = 4;
  to.d = load_u16(block + 108);
  const std::uint8_t* packed = block + 96;
  for (int half = 0; half < 2; ++half) {
    const int i = 2 * index + half;
    const int low = i < 8 ? packed[i] & 15 : packed[i - 8] >> 4, high = packed[8 + i % 4] >> i / 4 * 2 & 3;
    to.scales[half] = static_cast<std::int8_t>((low | high << 4) - 32);
  }
  read_pairs(to, block + 32, index);
  for (int i = 0; i < 32; ++i)
    to.codes[i] |= (block[i] >> index & 1) << 2;
  return to;
}

/// 16 bytes of nibbles, of inputs 0 to 15 in the low halves, that are places in a table.
void read_table(weight_group& to, const std::uint8_t* nibbles, const std::uint8_t (&table)[16]) {
  to.zero = 128;
  for (int i = 0; i < 16; ++i) {
    to.codes[i] = table[nibbles[i] & 15];
    to.codes[i + 16] = table[nibbles[i] >> 4];
  }
}

weight_group iq4_group(const std::uint8_t* block) {
  weight_group to;
  to.d = load_u16(block);
  read_table(to, block + 2, iq4_table);
  return to;
}

/// iq4_xs: d, the upper bit pairs of eight scales, four bytes of their lower nibbles, then the groups' nibbles.
weight_group iq4_super_group(const std::uint8_t* block, int index) {
  weight_group to;
  to.d = load_u16(block);
  const int low = block[4 + index / 2] >> index % 2 * 4 & 15, high = load_u16(block + 2) >> 2 * index & 3;
  to.scales[0] = to.scales[1] = static_cast<std::int8_t>((low | high << 4) - 32);
  read_table(to, block + 8 + index * 16, iq4_table);
  return to;
}

/// mxfp4: an exponent e for the scale 2^(e - 128), nibbles.
weight_group mx4_group(const std::uint8_t* block) {
  weight_group to;
  to.scale = scale_type::bf16;
  to.d = static_cast<std::uint16_t>(block[0] < 2 ? 0x20 << block[0] : (block[0] - 1) << 7);
  read_table(to, block + 1, mx4_table);
  return to;
}

/// nvfp4: four scales of 16 inputs each, then their nibbles, of inputs 0 to 7 in the low halves.
weight_group nv4_group(const std::uint8_t* block, int index) {
  weight_group to;
  to.scale = scale_type::e4m3_halves;
  to.unit = 0.5f;
  to.zero = 16;
  for (int half = 0; half < 2; ++half) {
    const std::uint8_t d = block[2 * index + half];
    to.d = static_cast<std::uint16_t>(to.d | (d == 0x7f ? 0 : d & 0x7f) << 8 * half); // which ggml reads so
    const std::uint8_t* nibbles = block + 4 + (2 * index + half) * 8;
    for (int i = 0; i < 8; ++i) {
      to.codes[16 * half + i] = nv4_table[nibbles[i] & 15];
      to.codes[16 * half + i + 8] = nv4_table[nibbles[i] >> 4];
    }
  }
  return to;
}

/// Codes that all have the scale d.
template <class Code>
weight_group coarse_group(const std::uint8_t* d, const std::uint8_t (&table)[16], Code code) {
  weight_group to;
  to.d = load_u16(d);
  to.zero = 16;
  for (int i = 0; i < 32; ++i)
    to.codes[i] = table[code(i)];
  return to;
}

/// q1_0: d, 16 bytes of bits.
weight_group one_bit_group(const std::uint8_t* block, int index) {
  return coarse_group(block, q1_table, [&](int i) { return block[2 + index * 4 + i / 8] >> i % 8 & 1; });
}

/// tq2_0: 64 bytes of bit pairs, d.
weight_group trit_group(const std::uint8_t* block, int index) {
  return coarse_group(block + 64, tq2_table, [&](int i) { return block[index / 4 * 32 + i] >> index % 4 * 2 & 3; });
}

/// tq1_0: bytes of up to five digits of base 3, d. Times 3^n / 256, the next digit of a byte is before the point.
weight_group packed_trit_group(const std::uint8_t* block, int index) {
  constexpr int powers[] = {1, 3, 9, 27, 81};
  return coarse_group(block + 52, tq2_table, [&](int i) {
    const int input = 32 * index + i;
    const int first = input < 160 ? 0 : input < 240 ? 32 : 48, bytes = input < 160 ? 32 : input < 240 ? 16 : 4;
    const int place = input - 5 * first;
    return (block[first + place % bytes] * powers[place / bytes] % 256) * 3 >> 8;
  });
}

} // namespace

weight_group stored_group(weight_format f, const void* row, std::size_t index) {
  const std::size_t groups = block_inputs(f) / group_inputs; // in a block
  const auto* block = static_cast<const std::uint8_t*>(row) + index / groups * block_bytes(f);
  const int part = static_cast<int>(index % groups);
  switch (f) {
    case weight_format::q4_0: return nibble_group(block, false, false);
    case weight_format::q4_1: return nibble_group(block, true, false);
    case weight_format::q5_0: return nibble_group(block, false, true);
    case weight_format::q5_1: return nibble_group(block, true, true);
    case weight_format::q8_0: return byte_group(block);
    case weight_format::q4_k: return super_group(block, part, false);
    case weight_format::q5_k: return super_group(block, part, true);
    case weight_format::q6_k: return six_bit_group(block, part);
    case weight_format::q2_k: return two_bit_group(block, part);
    case weight_format::q3_k: return three_bit_group(block, part);
    case weight_format::iq4_nl: return iq4_group(block);
    case weight_format::iq4_xs: return iq4_super_group(block, part);
    case weight_format::mxfp4: return mx4_group(block);
    case weight_format::nvfp4: return nv4_group(block, part);
    case weight_format::q1_0: return one_bit_group(block, part);
    case weight_format::tq1_0: return packed_trit_group(block, part);
    case weight_format::tq2_0: return trit_group(block, part);
    case weight_format::iq1_s:
    case weight_format::iq1_m:
    case weight_format::iq2_xxs:
    case weight_format::iq2_xs:
    case weight_format::iq2_s:
    case weight_format::iq3_xxs:
    case weight_format::iq3_s: return decoded(traits_of(f).on_cpu, stored_codes(f, block, part));
    case weight_format::f32:
    case weight_format::f16:
    case weight_format::bf16:
    case weight_format::fp8:
    case weight_format::fp8_128:
    case weight_format::fp8_32:
    case weight_format::f32_24:
    case weight_format::f16_24:
    case weight_format::bf16_24: break; // no groups
  }
  return {};
}

float scale_of(const weight_group& group, std::size_t half) {
  if (group.scale == scale_type::f16)
    return from_f16(group.d) * group.unit;
  const bool whole = group.scale == scale_type::bf16;
  const std::uint32_t bits = whole ? std::uint32_t(group.d) << 16 : std::uint32_t(group.d >> 8 * half & 0x7f) << 20;
  float d;
  std::memcpy(&d, &bits, sizeof d);
  return d * (whole ? group.unit : group.unit * 0x1p120f); // the exponent of E4M3 has a bias of 7, that of f32 of 127
}

void dequantise(const weight_group& group, float* weights) {
  const float d[2] = {scale_of(group, 0), scale_of(group, 1)}, m = from_f16(group.m);
  // Without minima these are -0, which keeps a zero's sign.
  const float minima[2] = {-(m * static_cast<float>(-group.minima[0])), -(m * static_cast<float>(-group.minima[1]))};
  for (std::size_t i = 0; i < group_inputs; ++i)
    weights[i] = d[i / 16] * group.scales[i / 16] * static_cast<float>(group.codes[i] - group.zero) + minima[i / 16];
}

namespace {

void expand_fp8(weight_format f, const std::uint8_t* row, std::size_t first, std::size_t count, float* weights) {
  const auto inputs = has_scale_blocks(f) ? traits_of(f).scale_inputs : first + count;
  for (std::size_t i = first; i < first + count;) {
    float scale;
    std::memcpy(&scale, row + fp8_scale_offset(f, i), sizeof scale);
    const auto* codes = row + fp8_offset(f, i);
    for (const auto end = std::min(first + count, (i / inputs + 1) * inputs); i < end; ++i)
      *weights++ = scale * from_e4m3(*codes++);
  }
}

} // namespace

void expand(weight_format f, const void* row, std::size_t first, std::size_t count, float* weights) {
  if (is_pruned(f))
    return expand_pruned(f, row, first, count, weights);
  if (is_fp8(f))
    return expand_fp8(f, static_cast<const std::uint8_t*>(row), first, count, weights);
  for (std::size_t i = 0; i < count; i += group_inputs)
    dequantise(stored_group(f, row, (first + i) / group_inputs), weights + i);
}

} // namespace troupe::kernels
