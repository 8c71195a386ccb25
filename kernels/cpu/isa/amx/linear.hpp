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
  static constexpr std::size_t word_bytes = panel_row_bytes;
  static void put(char* to, const char* from) {
    for (std::size_t i = 0; i < word_bytes; i += 64)
      _mm512_store_si512(to + i, _mm512_loadu_si512(from + i));
  }
};

struct codes_in_tiles {
  static constexpr bool widened = true;
  static constexpr std::size_t word_bytes = panel_outputs * 2;
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

/// Stores the sums of up to 16 rows and a panel.
inline void store_tiles(float* c) {
  tile_store<0>(c, panel_row_bytes);
  tile_store<1>(c + 16, panel_row_bytes);
  tile_store<2>(c + 32, panel_row_bytes);
  tile_store<3>(c + 48, panel_row_bytes);
}

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
  store_tiles(c);
}

/// Where a panel's word is, and how many bytes from one panel to the next.
template <class Stored>
inline std::size_t word_offset(const linear_op& op, std::size_t word) {
  return Stored::widened ? fp8_word_offset(op.scale_words, Stored::word_bytes, word) : word * Stored::word_bytes;
}

template <class Stored>
inline std::size_t bytes_of_panel(const linear_op& op) {
  return Stored::widened ? fp8_panel_bytes(op.scale_words, Stored::word_bytes, op.words)
                         : op.words * Stored::word_bytes;
}

/// sums += products * scales of some rows and a panel whose outputs have several scales. `weights`: what they are of, the
/// first words that share them.
inline void add_scaled(float* sums, const float* products, int rows, const char* weights) {
  const auto* scales = reinterpret_cast<const float*>(weights - fp8_scale_bytes);
  for (std::size_t i = 0; i < panel_outputs; i += lanes) {
    const vec scale = load(scales + i);
    for (std::size_t at = i; at < rows * panel_outputs; at += panel_outputs)
      store(sums + at, fma(load(products + at) * broadcast(fp8_unit), scale, load(sums + at)));
  }
}

/// All panels and row tiles of the task over `words` of K from `first`, a multiple of 16 words or fewer than 16. Of
/// weights with several scales for an output, they are of words that share one.
template <class Stored>
inline void accumulate_pairs(const linear_op& op, const linear_task& task, float* scratch, std::size_t first,
                             std::size_t words) {
  alignas(64) char widened[Stored::widened ? pair_words * panel_row_bytes : 64];
  const bool scaled = Stored::widened && has_scale_blocks(op);
  alignas(64) float products[Stored::widened ? amx_rows * panel_outputs : lanes];
  const std::size_t per_panel = bytes_of_panel<Stored>(op), bytes = words * Stored::word_bytes;
  const auto* weights = static_cast<const char*>(op.weights) + task.first_panel * per_panel +
    word_offset<Stored>(op, first);
  const auto* activations = op.activations + first / k_block * op.activation_block + first % k_block;
  const bool once = task.tiles == 1; // all weights come from memory; else only with the first tile
  int configured = 0;
  for (std::size_t panel = 0; panel < task.panels; ++panel) {
    const char* b = weights + panel * per_panel;
    const char* shared = scaled ? b - first % op.scale_words * Stored::word_bytes : b;
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
      const auto* a = activations + row * activation_stride;
      if (scaled) {
        if (first == 0)
          std::memset(scratch, 0, rows * panel_row_bytes);
        accumulate_panel(a, b, words, true, products, next);
        add_scaled(scratch, products, rows, shared);
      } else {
        accumulate_panel(a, b, words, first == 0, scratch, next);
      }
      scratch += rows * panel_outputs;
    }
  }
}

/// Sums one row tile without the words of K that are not kept, with the same bits. The weights of a group are brought
/// together in L1. A group's sums of even and odd inputs start at 0, and what is left out would add 0 to them; a group
/// that is left out whole would add 0 to the sums so far. The words of K that accumulate_pairs takes at a time and scales
/// together are so here, too.
template <class Stored>
void accumulate_kept_pairs(const linear_op& op, const linear_task& task, float* scratch) {
  constexpr std::size_t group = amx_words;
  alignas(64) char weights[group * panel_row_bytes];
  alignas(64) float products[Stored::widened ? amx_rows * panel_outputs : lanes];
  const bool scaled = Stored::widened && has_scale_blocks(op);
  const std::size_t per_panel = bytes_of_panel<Stored>(op), whole = op.words / group * group;
  const auto* panel = static_cast<const char*>(op.weights) + task.first_panel * per_panel;
  const int rows = static_cast<int>(op.rows);
  const auto block_of = [&](std::size_t k) { // the words that are scaled together
    return op.kept[k] >= whole ? op.words : op.kept[k] / op.scale_words;
  };
  configure_tiles(rows, group);
  for (std::size_t i = 0; i < task.panels; ++i, panel += per_panel) {
    if (scaled)
      std::memset(scratch, 0, rows * panel_row_bytes);
    for (std::size_t k = 0; k < op.kept_words; k += group) {
      if (k == 0 || (scaled && block_of(k) != block_of(k - group))) {
        tile_zero<0>();
        tile_zero<1>();
        tile_zero<2>();
        tile_zero<3>();
      }
      for (std::size_t word = 0; word < group; ++word) {
        if (k + group < op.kept_words)
          for (std::size_t byte = 0; byte < Stored::word_bytes; byte += 64)
            __builtin_prefetch(panel + word_offset<Stored>(op, op.kept[k + group + word]) + byte);
        Stored::put(weights + word * panel_row_bytes, panel + word_offset<Stored>(op, op.kept[k + word]));
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
      if (const bool last = k + group >= op.kept_words; last || (scaled && block_of(k) != block_of(k + group))) {
        store_tiles(scaled ? products : scratch);
        if (scaled)
          add_scaled(scratch, products, rows,
                     panel + word_offset<Stored>(op, op.kept[k] / op.scale_words * op.scale_words));
      }
    }
    if (op.kept_words == 0)
      std::memset(scratch, 0, rows * panel_row_bytes);
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
  const std::size_t at_once = Stored::widened && op.scale_words < pair_words ? op.scale_words : pair_words;
  for (std::size_t k = 0; k < whole; k += at_once)
    accumulate_pairs<Stored>(op, task, scratch, k, whole - k < at_once ? whole - k : at_once);
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
