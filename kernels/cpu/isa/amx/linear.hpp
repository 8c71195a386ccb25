// Linear layers in bf16, and in fp8, whose codes become pairs of bf16 in L1, on AMX tiles. Only for target units that have them.
//
// A tile instruction takes up to 16 rows of activations, 16 words of K and 16 outputs. It sums even and odd inputs
// separately, in order, and adds both to the sum so far; subnormals count as zero. It takes as long for one row as for
// 16, and a row's bits do not depend on the others. Even for one row it is faster than memory, so there is no other
// path.
#pragma once

#include "kernels/cpu/isa/linear_store.hpp"
#include "kernels/cpu/isa/native/tile_instructions.hpp"
#include "kernels/cpu/isa/tile.hpp"

namespace troupe::kernels {
namespace {

inline constexpr std::size_t amx_words = 16; // of K in a row of a tile
inline constexpr int pair_tile_rows = amx_rows;
inline constexpr std::size_t panel_row_bytes = panel_outputs * 4;

/// Words of K that a panel is multiplied by at a time: 16 KiB of weights, which stay in L1 for all rows.
inline constexpr std::size_t pair_words = 64;

// How panels store words. `put` writes one as 64 pairs of bf16.

struct pairs_in_tiles {
  static constexpr bool widened = false;
  static constexpr std::size_t header_bytes = 0, word_bytes = panel_row_bytes;
  static void put(char* to, const char* from) {
    for (std::size_t i = 0; i < word_bytes; i += 64)
      _mm512_store_si512(to + i, _mm512_loadu_si512(from + i));
  }
};

struct codes_in_tiles {
  static constexpr bool widened = true;
  static constexpr std::size_t header_bytes = fp8_scale_bytes, word_bytes = panel_outputs * 2;
  static void put(char* to, const char* from) {
    __m512i pairs[panel_outputs / lanes];
    read_columns<fp8_pair_operand>(pairs, reinterpret_cast<const std::uint16_t*>(from));
    for (const auto& x : pairs) {
      _mm512_store_si512(to, x);
      to += sizeof x;
    }
  }
};

/// Tiles 0 to 3: sums of four times 16 outputs; 4: activations; 6 and 7: weights.
inline void configure_tiles(int rows, std::size_t words) {
  tile_configuration to;
  for (int tile = 0; tile < 5; ++tile)
    to.set(tile, rows, tile == 4 ? static_cast<int>(words) * 4 : 64);
  to.set(6, static_cast<int>(words), 64);
  to.set(7, static_cast<int>(words), 64);
  tile_configure(to);
}

/// Weights that will be needed soon. Each product prefetches some of them.
struct upcoming_weights {
  const char* at;
  const char* end;
  int lines; // of 64 bytes, per product
  bool soon; // to L1, else to L2

  void fetch() {
    for (int i = 0; i < lines && at < end; ++i, at += 64)
      soon ? __builtin_prefetch(at, 0, 3) : __builtin_prefetch(at, 0, 2);
  }
};

/// Up to 16 rows by a panel: sums += activations * weights over `words`; c is [rows][panel_outputs].
inline void accumulate_panel(const std::uint32_t* a, const char* b, std::size_t words, bool fresh, float* c,
                             upcoming_weights& next) {
  if (fresh) {
    tile_zero<0>();
    tile_zero<1>();
    tile_zero<2>();
    tile_zero<3>();
  } else {
    tile_load<0>(c, panel_row_bytes);
    tile_load<1>(c + 16, panel_row_bytes);
    tile_load<2>(c + 32, panel_row_bytes);
    tile_load<3>(c + 48, panel_row_bytes);
  }
  for (std::size_t k = 0; k < words; k += amx_words) {
    tile_load<4>(a + k, activation_stride * 4);
    next.fetch();
    tile_load<6>(b, panel_row_bytes);
    tile_dot_bf16<0, 4, 6>();
    next.fetch();
    tile_load<7>(b + 64, panel_row_bytes);
    tile_dot_bf16<1, 4, 7>();
    next.fetch();
    tile_load<6>(b + 128, panel_row_bytes);
    tile_dot_bf16<2, 4, 6>();
    next.fetch();
    tile_load<7>(b + 192, panel_row_bytes);
    tile_dot_bf16<3, 4, 7>();
    b += amx_words * panel_row_bytes;
  }
  tile_store<0>(c, panel_row_bytes);
  tile_store<1>(c + 16, panel_row_bytes);
  tile_store<2>(c + 32, panel_row_bytes);
  tile_store<3>(c + 48, panel_row_bytes);
}

/// All panels and row tiles of the task over `words` of K from `first`, a multiple of 16 words or fewer than 16.
template <class Stored>
inline void accumulate_pairs(const linear_op& op, const linear_task& task, float* scratch, std::size_t first,
                             std::size_t words) {
  alignas(64) char widened[Stored::widened ? pair_words * panel_row_bytes : 64];
  const std::size_t per_panel = Stored::header_bytes + op.words * Stored::word_bytes,
                    bytes = words * Stored::word_bytes;
  const auto* weights = static_cast<const char*>(op.weights) + task.first_panel * per_panel + Stored::header_bytes +
    first * Stored::word_bytes;
  const auto* activations = op.activations + first / k_block * op.activation_block + first % k_block;
  const bool once = task.tiles == 1; // all weights come from memory; else only with the first tile
  int configured = 0;
  for (std::size_t panel = 0; panel < task.panels; ++panel) {
    const char* b = weights + panel * per_panel;
    const char* following = panel + 1 < task.panels ? b + per_panel : weights + bytes;
    if (once && !Stored::widened)
      following = b + amx_words * panel_row_bytes;
    constexpr std::size_t lines = amx_words * Stored::word_bytes / 64 / 4; // of a quarter of a tile's words
    upcoming_weights next{following, following + bytes, static_cast<int>((lines - 1) / task.tiles + 1), once};
    if constexpr (Stored::widened) {
      for (std::size_t k = 0; k < words; ++k)
        Stored::put(widened + k * panel_row_bytes, b + k * Stored::word_bytes);
      b = widened;
    }
    for (std::size_t tile = task.first_tile; tile < task.first_tile + task.tiles; ++tile) {
      const std::size_t row = first_row_of(op, tile);
      const int rows = static_cast<int>(first_row_of(op, tile + 1) - row);
      if (rows != configured)
        configure_tiles(configured = rows, words < amx_words ? words : amx_words);
      accumulate_panel(activations + row * activation_stride, b, words, first == 0, scratch, next);
      scratch += rows * panel_outputs;
    }
  }
}

/// Sums one row tile without the words of K that are not kept, with the same bits. The weights of a group are brought
/// together in L1. A group's sums of even and odd inputs start at 0, and what is left out would add 0 to them; a group
/// that is left out whole would add 0 to the sums so far.
template <class Stored>
void accumulate_kept_pairs(const linear_op& op, const linear_task& task, float* scratch) {
  constexpr std::size_t group = amx_words;
  alignas(64) char weights[group * panel_row_bytes];
  const std::size_t per_panel = Stored::header_bytes + op.words * Stored::word_bytes;
  const auto* panel = static_cast<const char*>(op.weights) + task.first_panel * per_panel + Stored::header_bytes;
  configure_tiles(static_cast<int>(op.rows), group);
  for (std::size_t i = 0; i < task.panels; ++i, panel += per_panel) {
    tile_zero<0>();
    tile_zero<1>();
    tile_zero<2>();
    tile_zero<3>();
    for (std::size_t k = 0; k < op.kept_words; k += group) {
      for (std::size_t word = 0; word < group; ++word) {
        if (k + group < op.kept_words)
          for (std::size_t byte = 0; byte < Stored::word_bytes; byte += 64)
            __builtin_prefetch(panel + op.kept[k + group + word] * Stored::word_bytes + byte);
        Stored::put(weights + word * panel_row_bytes, panel + op.kept[k + word] * Stored::word_bytes);
      }
      tile_load<4>(op.activations + k, static_cast<long>(op.kept_words * 4));
      tile_load<6>(weights, panel_row_bytes);
      tile_dot_bf16<0, 4, 6>();
      tile_load<7>(weights + 64, panel_row_bytes);
      tile_dot_bf16<1, 4, 7>();
      tile_load<6>(weights + 128, panel_row_bytes);
      tile_dot_bf16<2, 4, 6>();
      tile_load<7>(weights + 192, panel_row_bytes);
      tile_dot_bf16<3, 4, 7>();
    }
    tile_store<0>(scratch, panel_row_bytes);
    tile_store<1>(scratch + 16, panel_row_bytes);
    tile_store<2>(scratch + 32, panel_row_bytes);
    tile_store<3>(scratch + 48, panel_row_bytes);
    scratch += op.rows * panel_outputs;
  }
  tile_release();
}

/// Computes the sums, [panels][rows][panel_outputs]: blocks of K outside, then panels, row tiles inside.
template <class Stored>
void accumulate_pairs(const linear_op& op, const linear_task& task, float* scratch) {
  if (op.kept != nullptr)
    return accumulate_kept_pairs<Stored>(op, task, scratch);
  const std::size_t whole = op.words / amx_words * amx_words;
  for (std::size_t k = 0; k < whole; k += pair_words)
    accumulate_pairs<Stored>(op, task, scratch, k, whole - k < pair_words ? whole - k : pair_words);
  if (whole < op.words)
    accumulate_pairs<Stored>(op, task, scratch, whole, op.words - whole);
  tile_release();
}

template <class Stored>
void linear_pairs(const linear_op& op, const linear_task& task, float* scratch) {
  accumulate_pairs<Stored>(op, task, scratch);
  const std::size_t first = first_row_of(op, task.first_tile);
  const std::size_t last = first_row_of(op, task.first_tile + task.tiles);
  for (std::size_t row = first; row < last; ++row)
    for (std::size_t panel = 0; panel < task.panels; ++panel)
      store_sums(op, task.first_panel + panel, row, scratch + (panel * (last - first) + row - first) * panel_outputs);
}

} // namespace
} // namespace troupe::kernels
