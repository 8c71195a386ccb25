// Stored blocks are read as ggml defines them.
#include "kernels/formats/weight_groups.hpp"
#include "tests/kernels/reference.hpp"
#include "tests/kernels/support.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <initializer_list>
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
