// The tile registers of AMX, their shapes and instructions.
#pragma once

#include <cstdint>

namespace troupe::kernels {
namespace {

inline constexpr int amx_rows = 16; // of a tile, at most

/// What `ldtilecfg` reads.
struct alignas(64) tile_configuration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  void set(int tile, int tile_rows, int bytes) {
    rows[tile] = static_cast<std::uint8_t>(tile_rows);
    row_bytes[tile] = static_cast<std::uint16_t>(bytes);
  }
};

// GCC's own macros take no template arguments and do not say what they read.

#if !defined(TROUPE_EMULATED_TILES)

inline void tile_configure(const tile_configuration& shapes) {
  asm volatile("ldtilecfg %0" : : "m"(shapes) : "memory");
}
inline void tile_release() { asm volatile("tilerelease"); }

template <int Tile>
inline void tile_zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(Tile));
}
template <int Tile>
inline void tile_load(const void* from, long stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(Tile) : "memory");
}
template <int Tile>
inline void tile_store(void* to, long stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(Tile) : "memory");
}

/// Sums += pairs of bf16 times such pairs.
template <int Sums, int A, int B>
inline void tile_dot_bf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sums), "i"(A), "i"(B));
}
/// Sums += four int8 times such.
template <int Sums, int A, int B>
inline void tile_dot_int8() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sums), "i"(A), "i"(B));
}

#endif

} // namespace
} // namespace troupe::kernels

#if defined(TROUPE_EMULATED_TILES)
#include "tests/emulation/cpu/tiles.hpp"
#endif
