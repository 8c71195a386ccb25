// Linear layers in bf16 on AMX tiles. Only for target units that have them.
//
// A tile instruction takes up to 16 rows of activations, 16 words of K and 16 outputs: it sums the even inputs and the
// odd ones apart, in order, adds the two and adds that to the sum so far; denormals count as zero. It takes as long for
// one row as for 16, and keeps the rows apart, so that a row's bits do not depend on the others. For all numbers of rows
// it is faster than memory, hence there is no other way for one row.
#pragma once

#include "kernels/cpu/amx.hpp"
#include "kernels/cpu/tile.hpp"

namespace troupe::kernels {
namespace {

inline constexpr std::size_t amx_words = 16;   // of K in a row of a tile
inline constexpr int pair_tile_rows = 2 * amx_rows;
inline constexpr std::size_t panel_row_bytes = panel_outputs * 4;

/// Tiles 0 to 3 are sums, 4 and 5 activations, 6 and 7 weights. Up to 16 rows: 4 has them, 0 to 3 are the sums of four
/// times 16 outputs. More: 4 and 5 have 16 and the rest; 0 and 1 are the sums of 4, 2 and 3 those of 5.
inline void configure_tiles(int rows, std::size_t words) {
  tile_configuration to;
  const int first = rows < amx_rows ? rows : amx_rows;
  const int second = rows > amx_rows ? rows - amx_rows : first;
  for (int tile = 0; tile < 8; ++tile) {
    const int rows_of_it = tile >= 6 ? static_cast<int>(words) : tile == 2 || tile == 3 || tile == 5 ? second : first;
    to.set(tile, rows_of_it, tile == 4 || tile == 5 ? static_cast<int>(words) * 4 : 64);
  }
  visible(&to);
  _tile_loadconfig(&to);
}

/// How far ahead weights are fetched: a step of K. The next panel follows in memory.
inline constexpr std::size_t bytes_ahead = amx_words * panel_row_bytes;

/// 16 lines of 64 bytes.
inline void prefetch_lines(const char* from) {
  for (int line = 0; line < 16; ++line)
    __builtin_prefetch(from + 64 * line);
}

/// Up to 16 rows by a panel: sums += activations * weights over `words`. `c_stride` in bytes.
inline void accumulate_panel(const std::uint32_t* a, const char* b, std::size_t words, bool fresh, float* c,
                             std::size_t c_stride) {
  if (fresh) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, c, c_stride);
    _tile_loadd(1, c + 16, c_stride);
    _tile_loadd(2, c + 32, c_stride);
    _tile_loadd(3, c + 48, c_stride);
  }
  for (std::size_t k = 0; k < words; k += amx_words) {
    _tile_loadd(4, a + k, activation_stride * 4);
    prefetch_lines(b + bytes_ahead);
    _tile_loadd(6, b, panel_row_bytes);
    _tile_dpbf16ps(0, 4, 6);
    prefetch_lines(b + bytes_ahead + 1024);
    _tile_loadd(7, b + 64, panel_row_bytes);
    _tile_dpbf16ps(1, 4, 7);
    prefetch_lines(b + bytes_ahead + 2048);
    _tile_loadd(6, b + 128, panel_row_bytes);
    _tile_dpbf16ps(2, 4, 6);
    prefetch_lines(b + bytes_ahead + 3072);
    _tile_loadd(7, b + 192, panel_row_bytes);
    _tile_dpbf16ps(3, 4, 7);
    b += amx_words * panel_row_bytes;
  }
  _tile_stored(0, c, c_stride);
  _tile_stored(1, c + 16, c_stride);
  _tile_stored(2, c + 32, c_stride);
  _tile_stored(3, c + 48, c_stride);
}

/// 17 to 32 rows by half a panel.
inline void accumulate_half_panel(const std::uint32_t* a, const char* b, std::size_t words, bool fresh, float* c,
                                  std::size_t c_stride) {
  float* c2 = c + amx_rows * (c_stride / 4);
  if (fresh) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, c, c_stride);
    _tile_loadd(1, c + 16, c_stride);
    _tile_loadd(2, c2, c_stride);
    _tile_loadd(3, c2 + 16, c_stride);
  }
  for (std::size_t k = 0; k < words; k += amx_words) {
    _tile_loadd(4, a + k, activation_stride * 4);
    _tile_loadd(6, b, panel_row_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + 64, panel_row_bytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + k + amx_rows * activation_stride, activation_stride * 4);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    b += amx_words * panel_row_bytes;
  }
  _tile_stored(0, c, c_stride);
  _tile_stored(1, c + 16, c_stride);
  _tile_stored(2, c2, c_stride);
  _tile_stored(3, c2 + 16, c_stride);
}

/// All row tiles and panels of the task over `words` of K from `first`, a multiple of 16 words or fewer than 16.
inline void accumulate_pairs(const linear_op& op, const linear_task& task, float* scratch, std::size_t first,
                             std::size_t words) {
  const std::size_t per_panel = op.words * panel_row_bytes;
  const auto* weights = static_cast<const char*>(op.weights) + task.first_panel * per_panel + first * panel_row_bytes;
  const auto* activations = op.activations + first / k_block * op.activation_block + first % k_block;
  const std::size_t first_row = first_row_of(op, task.first_tile);
  const std::size_t c_stride = task.panels * panel_outputs;
  int configured = 0;
  for (std::size_t tile = task.first_tile; tile < task.first_tile + task.tiles; ++tile) {
    const std::size_t row = first_row_of(op, tile);
    const int rows = static_cast<int>(first_row_of(op, tile + 1) - row);
    if (rows != configured)
      configure_tiles(configured = rows, words < amx_words ? words : amx_words);
    const auto* a = activations + row * activation_stride;
    for (std::size_t panel = 0; panel < task.panels; ++panel) {
      const char* b = weights + panel * per_panel;
      float* c = scratch + (row - first_row) * c_stride + panel * panel_outputs;
      if (rows <= amx_rows) {
        accumulate_panel(a, b, words, first == 0, c, c_stride * 4);
      } else {
        accumulate_half_panel(a, b, words, first == 0, c, c_stride * 4);
        accumulate_half_panel(a, b + 128, words, first == 0, c + 32, c_stride * 4);
      }
    }
  }
}

void accumulate_pairs(const linear_op& op, const linear_task& task, float* scratch) {
  const std::size_t whole = op.words / amx_words * amx_words;
  for (std::size_t k = 0; k < whole; k += k_block)
    accumulate_pairs(op, task, scratch, k, whole - k < k_block ? whole - k : k_block);
  if (whole < op.words)
    accumulate_pairs(op, task, scratch, whole, op.words - whole);
  _tile_release();
}

} // namespace
} // namespace troupe::kernels
