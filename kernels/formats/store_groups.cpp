#include "kernels/formats/store_groups.hpp"

#include <algorithm>

namespace troupe::kernels {

namespace {

void put_half(std::uint8_t* to, std::uint16_t half) {
  to[0] = static_cast<std::uint8_t>(half & 0xff);
  to[1] = static_cast<std::uint8_t>(half >> 8);
}

/// The place of a weight in the table of iq4_nl and iq4_xs.
std::uint8_t table_place(std::uint8_t weight) {
  return static_cast<std::uint8_t>(std::lower_bound(iq4_table, iq4_table + 15, weight) - iq4_table);
}

/// 16 bytes of nibbles, of inputs 0 to 15 in the low halves.
template <class Code>
void put_nibbles(std::uint8_t* to, const weight_group& group, Code code) {
  for (int i = 0; i < 16; ++i)
    to[i] = static_cast<std::uint8_t>(code(group.codes[i]) | code(group.codes[i + 16]) << 4);
}

std::uint8_t low_nibble(std::uint8_t code) { return code & 15; }

void store_nibbles(const weight_group& group, std::uint8_t* block, bool minimum, bool five_bits) {
  put_half(block, group.d);
  block += 2;
  if (minimum) {
    put_half(block, group.m);
    block += 2;
  }
  if (five_bits) {
    std::fill_n(block, 4, std::uint8_t{0});
    for (int i = 0; i < 32; ++i)
      block[i / 8] = static_cast<std::uint8_t>(block[i / 8] | group.codes[i] >> 4 << i % 8);
    block += 4;
  }
  put_nibbles(block, group, low_nibble);
}

void store_super(const weight_group* groups, std::uint8_t* block, bool five_bits) {
  put_half(block, groups[0].d);
  put_half(block + 2, groups[0].m);
  auto* packed = block + 4;
  const auto scale = [&](int i) { return static_cast<int>(groups[i].scales[0]); };
  const auto minimum = [&](int i) { return -static_cast<int>(groups[i].minima[0]); };
  for (int i = 0; i < 4; ++i) {
    packed[i] = static_cast<std::uint8_t>(scale(i) | scale(i + 4) >> 4 << 6);
    packed[i + 4] = static_cast<std::uint8_t>(minimum(i) | minimum(i + 4) >> 4 << 6);
    packed[i + 8] = static_cast<std::uint8_t>((scale(i + 4) & 15) | (minimum(i + 4) & 15) << 4);
  }
  auto* nibbles = block + (five_bits ? 48 : 16);
  for (int i = 0; i < 128; ++i)
    nibbles[i] = static_cast<std::uint8_t>((groups[i / 32 * 2].codes[i % 32] & 15) |
                                           (groups[i / 32 * 2 + 1].codes[i % 32] & 15) << 4);
  if (!five_bits)
    return;
  std::fill_n(block + 16, 32, std::uint8_t{0});
  for (int g = 0; g < 8; ++g)
    for (int i = 0; i < 32; ++i)
      block[16 + i] = static_cast<std::uint8_t>(block[16 + i] | groups[g].codes[i] >> 4 << g);
}

void store_six_bits(const weight_group* groups, std::uint8_t* block) {
  put_half(block + 208, groups[0].d);
  std::fill_n(block, 192, std::uint8_t{0});
  for (int g = 0; g < 8; ++g) {
    block[192 + 2 * g] = static_cast<std::uint8_t>(groups[g].scales[0]);
    block[193 + 2 * g] = static_cast<std::uint8_t>(groups[g].scales[1]);
    const int half = g / 4, quarter = g % 4;
    auto* low = block + half * 64 + quarter % 2 * 32;
    auto* high = block + 128 + half * 32;
    for (int i = 0; i < 32; ++i) {
      low[i] = static_cast<std::uint8_t>(low[i] | (groups[g].codes[i] & 15) << quarter / 2 * 4);
      high[i] = static_cast<std::uint8_t>(high[i] | groups[g].codes[i] >> 4 << quarter * 2);
    }
  }
}

void put_pairs(std::uint8_t* to, const weight_group* groups) {
  std::fill_n(to, 64, std::uint8_t{0});
  for (int g = 0; g < 8; ++g)
    for (int i = 0; i < 32; ++i)
      to[g / 4 * 32 + i] = static_cast<std::uint8_t>(to[g / 4 * 32 + i] | (groups[g].codes[i] & 3) << g % 4 * 2);
}

void store_two_bits(const weight_group* groups, std::uint8_t* block) {
  put_half(block + 80, groups[0].d);
  put_half(block + 82, groups[0].m);
  for (int g = 0; g < 16; ++g)
    block[g] = static_cast<std::uint8_t>(groups[g / 2].scales[g % 2] | -groups[g / 2].minima[g % 2] << 4);
  put_pairs(block + 16, groups);
}

void store_three_bits(const weight_group* groups, std::uint8_t* block) {
  put_half(block + 108, groups[0].d);
  auto* packed = block + 96;
  std::fill_n(packed, 12, std::uint8_t{0});
  for (int i = 0; i < 16; ++i) {
    const int scale = groups[i / 2].scales[i % 2] + 32;
    packed[i % 8] = static_cast<std::uint8_t>(packed[i % 8] | (scale & 15) << i / 8 * 4);
    packed[8 + i % 4] = static_cast<std::uint8_t>(packed[8 + i % 4] | scale >> 4 << i / 4 * 2);
  }
  put_pairs(block + 32, groups);
  std::fill_n(block, 32, std::uint8_t{0});
  for (int g = 0; g < 8; ++g)
    for (int i = 0; i < 32; ++i)
      block[i] = static_cast<std::uint8_t>(block[i] | groups[g].codes[i] >> 2 << g);
}

void store_iq4_super(const weight_group* groups, std::uint8_t* block) {
  put_half(block, groups[0].d);
  std::fill_n(block + 2, 6, std::uint8_t{0});
  for (int g = 0; g < 8; ++g) {
    const int scale = groups[g].scales[0] + 32;
    block[2 + g / 4] = static_cast<std::uint8_t>(block[2 + g / 4] | scale >> 4 << g % 4 * 2);
    block[4 + g / 2] = static_cast<std::uint8_t>(block[4 + g / 2] | (scale & 15) << g % 2 * 4);
    put_nibbles(block + 8 + g * 16, groups[g], table_place);
  }
}

} // namespace

void store_groups(weight_format f, const weight_group* groups, std::uint8_t* block) {
  switch (f) {
    case weight_format::q4_0: return store_nibbles(*groups, block, false, false);
    case weight_format::q4_1: return store_nibbles(*groups, block, true, false);
    case weight_format::q5_0: return store_nibbles(*groups, block, false, true);
    case weight_format::q5_1: return store_nibbles(*groups, block, true, true);
    case weight_format::q8_0:
      put_half(block, groups->d);
      std::transform(groups->codes, groups->codes + group_inputs, block + 2, [](std::uint8_t c) { return c ^ 0x80; });
      return;
    case weight_format::q4_k: return store_super(groups, block, false);
    case weight_format::q5_k: return store_super(groups, block, true);
    case weight_format::q6_k: return store_six_bits(groups, block);
    case weight_format::q2_k: return store_two_bits(groups, block);
    case weight_format::q3_k: return store_three_bits(groups, block);
    case weight_format::iq4_nl: put_half(block, groups->d); return put_nibbles(block + 2, *groups, table_place);
    case weight_format::iq4_xs: return store_iq4_super(groups, block);
    case weight_format::mxfp4:
    case weight_format::nvfp4:
    case weight_format::q1_0:
    case weight_format::tq1_0:
    case weight_format::tq2_0:
    case weight_format::iq1_s:
    case weight_format::iq1_m:
    case weight_format::iq2_xxs:
    case weight_format::iq2_xs:
    case weight_format::iq2_s:
    case weight_format::iq3_xxs:
    case weight_format::iq3_s:
    case weight_format::f32:
    case weight_format::f16:
    case weight_format::bf16:
    case weight_format::fp8:
    case weight_format::fp8_128:
    case weight_format::fp8_32:
    case weight_format::f32_24:
    case weight_format::f16_24:
    case weight_format::bf16_24: return; // not written
  }
}

} // namespace troupe::kernels
