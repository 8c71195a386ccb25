#include "kernels/block_formats.hpp"

#include <bit>
#include <cstring>

namespace troupe::kernels {

namespace {

using byte = std::uint8_t;

float f16_at(const byte* p) { return from_f16(static_cast<std::uint16_t>(p[0] | p[1] << 8)); }

/// 32 weights of `Bits` bits, nibbles at `qs` and fifth bits at `qh`; `offset` is taken from each, `minimum` added.
/// Adding a minimum of -0 changes nothing, not even the sign of a zero.
template <int Bits>
void expand_32(const byte* qs, const byte* qh, int offset, float d, float minimum, float* out) {
  const auto value = [&](int q, int index) {
    if constexpr (Bits == 5)
      q |= (qh[index / 8] >> index % 8 & 1) << 4;
    return d * static_cast<float>(q - offset) + minimum;
  };
  for (int i = 0; i < 16; ++i) {
    out[i] = value(qs[i] & 15, i);
    out[i + 16] = value(qs[i] >> 4, i + 16);
  }
}

constexpr float no_minimum = -0.0f;

void expand_q4_0(const byte* b, float* out) { expand_32<4>(b + 2, nullptr, 8, f16_at(b), no_minimum, out); }
void expand_q4_1(const byte* b, float* out) { expand_32<4>(b + 4, nullptr, 0, f16_at(b), f16_at(b + 2), out); }
void expand_q5_0(const byte* b, float* out) { expand_32<5>(b + 6, b + 2, 16, f16_at(b), no_minimum, out); }
void expand_q5_1(const byte* b, float* out) { expand_32<5>(b + 8, b + 4, 0, f16_at(b), f16_at(b + 2), out); }

void expand_q8_0(const byte* b, float* out) {
  const float d = f16_at(b);
  for (int i = 0; i < 32; ++i)
    out[i] = d * static_cast<float>(std::bit_cast<std::int8_t>(b[2 + i]));
}

struct scale_and_minimum {
  int scale, minimum; // 6 bits each
};

/// Of sub-block i, 0 to 7, from 12 bytes: the first eight hold six bits for 0 to 3 and, at their top, the upper two bits
/// for 4 to 7; the last four the lower four bits of those.
scale_and_minimum unpack_scale(const byte* s, int i) {
  if (i < 4)
    return {s[i] & 63, s[i + 4] & 63};
  return {(s[i + 4] & 15) | (s[i - 4] >> 6) << 4, s[i + 4] >> 4 | (s[i] >> 6) << 4};
}

/// q4_k and q5_k: eight sub-blocks of 32, of which two share 32 bytes of nibbles.
template <int Bits>
void expand_k(const byte* b, float* out) {
  const float d = f16_at(b), dmin = f16_at(b + 2);
  const byte* const fifth = b + 16;
  const byte* const nibbles = b + (Bits == 5 ? 48 : 16);
  for (int sub = 0; sub < 8; ++sub) {
    const auto [scale, minimum] = unpack_scale(b + 4, sub);
    const float s = d * static_cast<float>(scale), m = dmin * static_cast<float>(minimum);
    for (int i = 0; i < 32; ++i) {
      int q = nibbles[sub / 2 * 32 + i] >> sub % 2 * 4 & 15;
      if constexpr (Bits == 5)
        q |= (fifth[i] >> sub & 1) << 4;
      out[sub * 32 + i] = s * static_cast<float>(q) - m;
    }
  }
}

/// Two halves of 128, each of four rows of 32; a scale per 16.
void expand_q6_k(const byte* b, float* out) {
  const float d = f16_at(b + 208);
  for (int half = 0; half < 2; ++half) {
    const byte* const low = b + half * 64;
    const byte* const high = b + 128 + half * 32;
    const byte* const scales = b + 192 + half * 8;
    for (int row = 0; row < 4; ++row)
      for (int i = 0; i < 32; ++i) {
        const int q = (low[row % 2 * 32 + i] >> row / 2 * 4 & 15) | (high[i] >> row * 2 & 3) << 4;
        const float s = d * static_cast<float>(std::bit_cast<std::int8_t>(scales[row * 2 + i / 16]));
        out[half * 128 + row * 32 + i] = s * static_cast<float>(q - 32);
      }
  }
}

} // namespace

const char* to_string(block_format format) {
  constexpr const char* names[] = {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"};
  return names[static_cast<std::size_t>(format)];
}

float from_f16(std::uint16_t h) {
  const std::uint32_t sign = std::uint32_t(h & 0x8000u) << 16, exponent = h >> 10 & 31u, fraction = h & 1023u;
  if (exponent == 0) // zero or subnormal: fraction * 2^-24
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(static_cast<float>(fraction) * 0x1p-24f) | sign);
  const std::uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

void expand_blocks(block_format format, const void* blocks, std::size_t count, float* out) {
  constexpr void (*expanders[])(const byte*, float*) = {expand_q4_0,  expand_q4_1, expand_q5_0, expand_q5_1,
                                                        expand_q8_0, expand_k<4>, expand_k<5>, expand_q6_k};
  const auto expand = expanders[static_cast<std::size_t>(format)];
  const std::size_t weights = block_weights(format), bytes = block_bytes(format);
  const auto* from = static_cast<const byte*>(blocks);
  for (std::size_t done = 0; done < count; done += weights, from += bytes)
    expand(from, out + done);
}

} // namespace troupe::kernels
