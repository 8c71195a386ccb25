// The shapes of AMX tile registers.
#pragma once

#include <cstdint>

namespace troupe::kernels {
namespace {

inline constexpr int amx_rows = 16; // the most rows of a tile

/// The operand of `ldtilecfg`.
struct alignas(64) tile_configuration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  void set(int tile, int tile_rows, int bytes) {
    rows[tile] = static_cast<std::uint8_t>(tile_rows);
    row_bytes[tile] = static_cast<std::uint16_t>(bytes);
  }
};

} // namespace
} // namespace troupe::kernels
