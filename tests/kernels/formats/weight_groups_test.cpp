// Stored blocks are read as ggml defines them.
#include "kernels/formats/codebooks.hpp"
#include "kernels/formats/store_groups.hpp"
#include "kernels/formats/weight_groups.hpp"
#include "tests/kernels/reference.hpp"
#include "tests/kernels/support.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <initializer_list>
#include <map>
#include <set>
#include <vector>

using namespace troupe::kernels;

namespace {

/// A block with f16 `scales` and bytes from a counter, and its weights.
struct counted_block {
  std::vector<std::uint8_t> bytes;
  std::vector<float> weights;

  counted_block(weight_format format, std::initializer_list<float> scales) : bytes(block_bytes(format)) {
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::uint8_t>(i * 37 + 11);
    const auto offsets = troupe::kernels::testing::f16_offsets(format);
    auto at = offsets.begin();
    for (const float s : scales) {
      const auto bits = reference::to_f16(s);
      std::memcpy(&bytes[*at++], &bits, 2);
    }
    weights.resize(block_inputs(format));
    for (std::size_t i = 0; i < weights.size(); i += group_inputs)
      dequantise(stored_group(format, bytes.data(), i / group_inputs), &weights[i]);
  }
  int bit(std::size_t index) const { return bytes[index / 8] >> index % 8 & 1; }
};

/// Entries of a codebook; of iq1, both halves.
std::size_t entries_in(weight_kind kind) {
  switch (kind) {
    case weight_kind::iq1: return 4096;
    case weight_kind::iq2_s: return 1024;
    case weight_kind::iq2_xs:
    case weight_kind::iq3_s: return 512;
    default: return 256;
  }
}

} // namespace

TEST_CASE("blocks of 32 have a scale, optionally a minimum and fifth bits, then codes") {
  const counted_block q8(weight_format::q8_0, {0.5f}), q40(weight_format::q4_0, {0.5f}),
    q41(weight_format::q4_1, {0.5f, 3}), q50(weight_format::q5_0, {0.5f}), q51(weight_format::q5_1, {0.5f, 3});
  const auto nibble = [](const counted_block& b, int first, int i) {
    return b.bytes[first + i % 16] >> i / 16 * 4 & 15;
  };
  for (int i = 0; i < 32; ++i) {
    CHECK(q8.weights[i] == 0.5f * static_cast<std::int8_t>(q8.bytes[2 + i]));
    CHECK(q40.weights[i] == 0.5f * (nibble(q40, 2, i) - 8));
    CHECK(q41.weights[i] == 0.5f * nibble(q41, 4, i) + 3);
    CHECK(q50.weights[i] == 0.5f * (nibble(q50, 6, i) + 16 * q50.bit(16 + i) - 16));
    CHECK(q51.weights[i] == 0.5f * (nibble(q51, 8, i) + 16 * q51.bit(32 + i)) + 3);
  }
}

TEST_CASE("blocks of 256 have scales of 6 or 8 bits and a common f16 factor") {
  const counted_block q4(weight_format::q4_k, {0.5f, 2}), q5(weight_format::q5_k, {0.5f, 2}),
    q6(weight_format::q6_k, {0.5f});
  for (const auto* b : {&q4, &q5})
    for (int i = 0; i < 256; ++i) {
      const int j = i / 32;
      const std::uint8_t* s = &b->bytes[4];
      const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) + (s[j - 4] >> 6) * 16;
      const int minimum = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) + (s[j] >> 6) * 16;
      int code = b->bytes[(b == &q4 ? 16 : 48) + i / 64 * 32 + i % 32] >> j % 2 * 4 & 15;
      if (b == &q5)
        code += (b->bytes[16 + i % 32] >> j & 1) * 16;
      CHECK(b->weights[i] == 0.5f * scale * code - 2.0f * minimum);
    }
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, part = i % 128;
    const int low = q6.bytes[half * 64 + part % 64] >> part / 64 * 4 & 15;
    const int high = q6.bytes[128 + half * 32 + part % 32] >> part / 32 * 2 & 3;
    CHECK(q6.weights[i] == 0.5f * static_cast<std::int8_t>(q6.bytes[192 + i / 16]) * (low + 16 * high - 32));
  }
}

TEST_CASE("blocks of bit pairs have scales, or scales and minima, for every 16 inputs") {
  const counted_block q2(weight_format::q2_k, {0.5f, 2}), q3(weight_format::q3_k, {0.5f});
  for (int i = 0; i < 256; ++i) {
    const int group = i / 32, pair = i / 128 * 32 + i % 32, shift = group % 4 * 2;
    const int packed = q2.bytes[i / 16];
    CHECK(q2.weights[i] == 0.5f * (packed & 15) * (q2.bytes[16 + pair] >> shift & 3) - 2.0f * (packed >> 4));
    const int s = i / 16, low = q3.bytes[96 + s % 8] >> s / 8 * 4 & 15, high = q3.bytes[104 + s % 4] >> s / 4 * 2 & 3;
    const int code = (q3.bytes[32 + pair] >> shift & 3) + (q3.bytes[i % 32] >> group & 1) * 4;
    CHECK(q3.weights[i] == 0.5f * (low + 16 * high - 32) * (code - 4));
  }
}

TEST_CASE("blocks of places in a table have the table's weights times a scale") {
  const int iq4[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  const float mx4[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  const counted_block nl(weight_format::iq4_nl, {0.5f}), xs(weight_format::iq4_xs, {0.5f});
  counted_block mx(weight_format::mxfp4, {});
  const auto nibble = [](const counted_block& b, int first, int i) {
    return b.bytes[first + i % 16] >> i / 16 * 4 & 15;
  };
  for (int i = 0; i < 256; ++i) {
    const int j = i / 32, low = xs.bytes[4 + j / 2] >> j % 2 * 4 & 15;
    const int high = (xs.bytes[2] | xs.bytes[3] << 8) >> 2 * j & 3;
    CHECK(xs.weights[i] == 0.5f * (low + 16 * high - 32) * iq4[nibble(xs, 8 + 16 * j, i % 32)]);
  }
  for (const int exponent : {0, 1, 2, 127, 130}) {
    mx.bytes[0] = static_cast<std::uint8_t>(exponent);
    dequantise(stored_group(weight_format::mxfp4, mx.bytes.data(), 0), mx.weights.data());
    for (int i = 0; i < 32; ++i) {
      CHECK(nl.weights[i] == 0.5f * iq4[nibble(nl, 2, i)]);
      CHECK(mx.weights[i] == std::ldexp(mx4[nibble(mx, 1, i)], exponent - 127));
    }
  }
}

TEST_CASE("blocks of codebooks, digits of base 3 and NVFP4 have the weights of gguf-py, bit for bit, with all codes") {
  // Printed by tests/data/make_codebooks.py.
  const std::map<weight_format, std::uint32_t> known{
    {weight_format::iq1_s, 1477327962u},  {weight_format::iq1_m, 4010451169u}, {weight_format::iq2_xxs, 354021031u},
    {weight_format::iq2_xs, 1599527631u}, {weight_format::iq2_s, 1183916147u}, {weight_format::iq3_xxs, 795714333u},
    {weight_format::iq3_s, 2028955103u},  {weight_format::tq1_0, 3004418601u}, {weight_format::tq2_0, 2800794282u},
    {weight_format::nvfp4, 1941435111u},
  };
  for (const auto& [format, checksum] : known) {
    CAPTURE(to_string(format));
    std::vector<std::uint8_t> blocks(2048 * block_bytes(format));
    std::uint32_t state = 1, value = 0x811c9dc5;
    for (auto& byte : blocks)
      byte = static_cast<std::uint8_t>((state = state * 1664525 + 1013904223) >> 24);
    const auto offsets = troupe::kernels::testing::f16_offsets(format);
    std::set<std::uint16_t> places;
    for (std::size_t at = 0; at < blocks.size(); at += block_bytes(format)) {
      if (format != weight_format::nvfp4)
        blocks[at + (offsets.empty() ? 55 : offsets[0] + 1)] &= 0xbf;
      for (int part = 0; has_codebook(traits_of(format).on_cpu) && part < 8; ++part)
        for (const auto place : stored_codes(format, &blocks[at], part).places)
          places.insert(place);
    }
    std::vector<float> weights(2048 * block_inputs(format));
    expand(format, blocks.data(), 0, weights.size(), weights.data());
    std::vector<std::uint8_t> bytes(4 * weights.size());
    std::memcpy(bytes.data(), weights.data(), bytes.size());
    for (const auto byte : bytes)
      value = (value ^ byte) * 0x01000193;
    CHECK(value == checksum);
    if (const auto kind = traits_of(format).on_cpu; has_codebook(kind))
      CHECK(places.size() == entries_in(kind));
  }
}

TEST_CASE("a block of bits has a weight's two signs") {
  const counted_block q1(weight_format::q1_0, {0.5f});
  for (int i = 0; i < 128; ++i)
    CHECK(q1.weights[i] == (q1.bit(16 + i) ? 0.5f : -0.5f));
}

TEST_CASE("blocks that are read as groups are written back byte for byte") {
  troupe::kernels::testing::generator random(7);
  for (const auto& traits : weight_formats) {
    if (!has_groups(traits.format) || is_only_read(traits.format))
      continue;
    CAPTURE(traits.name);
    for (int round = 0; round < 20; ++round) {
      std::vector<std::uint8_t> block(traits.block_bytes), written(traits.block_bytes, 0xa5);
      for (auto& byte : block)
        byte = static_cast<std::uint8_t>(random.below(256));
      std::vector<weight_group> groups;
      for (std::size_t g = 0; g < traits.block_inputs / group_inputs; ++g)
        groups.push_back(stored_group(traits.format, block.data(), g));
      store_groups(traits.format, groups.data(), written.data());
      CHECK(written == block);
    }
  }
}
