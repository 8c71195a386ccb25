// Tile registers and their instructions in plain C++. Shadows the header of the same path in emulated target units.
#pragma once

#include "kernels/cpu/isa/amx/tile_configuration.hpp"

#include <cstring>
#include <initializer_list>

namespace troupe::kernels {
namespace {

struct tile_register {
  int rows = 0, bytes = 0;
  alignas(64) std::uint32_t words[16][16] = {};
};

inline thread_local tile_register tile_registers[8];

inline void tile_configure(const tile_configuration& shapes) {
  for (int tile = 0; tile < 8; ++tile) {
    tile_registers[tile] = {};
    tile_registers[tile].rows = shapes.rows[tile];
    tile_registers[tile].bytes = shapes.row_bytes[tile];
  }
}
inline void tile_release() { tile_configure({}); }

template <int Tile>
inline void tile_zero() {
  std::memset(tile_registers[Tile].words, 0, sizeof tile_registers[Tile].words);
}
template <int Tile>
inline void tile_load(const void* from, long stride) {
  tile_zero<Tile>();
  auto& to = tile_registers[Tile];
  for (int r = 0; r < to.rows; ++r)
    std::memcpy(to.words[r], static_cast<const char*>(from) + r * stride, to.bytes);
}
template <int Tile>
inline void tile_store(void* to, long stride) {
  const auto& from = tile_registers[Tile];
  for (int r = 0; r < from.rows; ++r)
    std::memcpy(static_cast<char*>(to) + r * stride, from.words[r], from.bytes);
}

/// One of the two bf16 of each word; subnormals count as zero.
inline void halves_of(float* to, const std::uint32_t* pairs, bool high) {
  for (int i = 0; i < 16; ++i) {
    std::uint32_t bits = high ? pairs[i] & 0xffff0000u : pairs[i] << 16;
    bits = (bits & 0x7f800000u) == 0 ? 0 : bits;
    std::memcpy(to + i, &bits, sizeof bits);
  }
}

inline float flushed(float x) { return x < 0x1p-126f && x > -0x1p-126f ? __builtin_copysignf(0, x) : x; }

/// As in Intel's manual: even and odd inputs are summed separately, then both sums are added to the destination;
/// subnormal sums become zero.
template <int Sums, int A, int B>
inline void tile_dot_bf16() {
  const auto &a = tile_registers[A], &b = tile_registers[B];
  auto& c = tile_registers[Sums];
  const int words = a.bytes / 4;
  float weights[2][16][16];
  for (int k = 0; k < words; ++k)
    for (const bool high : {false, true})
      halves_of(weights[high][k], b.words[k], high);
  for (int r = 0; r < c.rows; ++r) {
    float x[2][16], sums[2][16] = {}, to[16];
    for (const bool high : {false, true}) {
      halves_of(x[high], a.words[r], high);
      for (int k = 0; k < words; ++k)
        for (int n = 0; n < 16; ++n)
          sums[high][n] = flushed(__builtin_fmaf(x[high][k], weights[high][k][n], sums[high][n]));
    }
    std::memcpy(to, c.words[r], sizeof to);
    for (int n = 0; n < 16; ++n)
      to[n] = flushed(flushed(to[n]) + flushed(sums[0][n] + sums[1][n]));
    std::memcpy(c.words[r], to, sizeof to);
  }
}
template <int Sums, int A, int B>
inline void tile_dot_int8() {
  const auto &a = tile_registers[A], &b = tile_registers[B];
  auto& c = tile_registers[Sums];
  const auto byte = [](std::uint32_t word, int i) { return int(static_cast<std::int8_t>(word >> 8 * i)); };
  for (int r = 0; r < c.rows; ++r)
    for (int n = 0; n < c.bytes / 4; ++n)
      for (int k = 0; k < a.bytes / 4; ++k)
        for (int i = 0; i < 4; ++i)
          c.words[r][n] += static_cast<std::uint32_t>(byte(a.words[r][k], i) * byte(b.words[k][n], i));
}

} // namespace
} // namespace troupe::kernels
