// Quantised linear layers in int8 on AMX tiles. Only for target units that have them.
//
// A tile has 16 rows, 16 outputs and the inputs that share a scale. Its dots leave the tile registers through a buffer
// in L1 and are scaled from there. Measured on Sapphire Rapids: computing and storing a tile take 5 ns each, and
// overlap only if the store comes some tiles later; while tile registers are in use, one of the two ports for float
// arithmetic idles, but none for integers. So the unit of work is a step of two scales for 16 rows: computed, stored in
// the next step, scaled in the one after, and converted to floats by an integer addition. Kinds with more float work
// per group (minima, two scales) are faster without tiles.
#pragma once

#include "kernels/cpu/isa/native/tile_instructions.hpp"
#include "kernels/cpu/isa/quantised_tiles.hpp"

namespace troupe::kernels {
namespace {

template <weight_kind Kind>
inline constexpr bool in_amx_tiles = layout_of(Kind).parts == 1 && !layout_of(Kind).minimum;

inline constexpr std::size_t amx_step = 2;

using amx_dots = std::int32_t[quantised_vectors][amx_rows][lanes];

struct quantised_scratch {
  unpacked_block weights;
  alignas(64) amx_dots dots[2][amx_step];
};

/// Configures the tile registers and releases them at the end of its life: 0 to 3 dots, 4 and 5 activations, 6 and 7
/// weights.
class amx_tiles {
public:
  explicit amx_tiles(bool needed) : needed_(needed) {
    if (!needed)
      return;
    tile_configuration shapes;
    for (int tile = 0; tile < 8; ++tile)
      shapes.set(tile, tile < 6 ? amx_rows : 8, tile == 4 || tile == 5 ? 32 : 64);
    tile_configure(shapes);
  }
  ~amx_tiles() {
    if (needed_)
      tile_release();
  }
  amx_tiles(const amx_tiles&) = delete;
  amx_tiles& operator=(const amx_tiles&) = delete;

private:
  bool needed_;
};

/// Shifts codes so that weight 0 has the code 0.
template <int Zero>
inline ivec signed_codes(ivec codes) {
  return {_mm512_sub_epi8(codes.v, _mm512_set1_epi8(static_cast<char>(Zero)))};
}

template <int>
struct amx_index {};

/// Dots of 16 rows and 16 outputs over the inputs of one scale; `Index` is the scale and vector within a step.
template <int Index>
inline void make_dots(const std::uint32_t* activations, const unsigned char* codes) {
  constexpr long row_bytes = activation_record * 4, line_bytes = quantised_vectors * 64;
  if constexpr (Index % 2 == 0)
    tile_load<4 + Index / 2>(activations, row_bytes);
  tile_load<6 + Index % 2>(codes + Index % 2 * 64, line_bytes);
  tile_zero<Index>();
  tile_dot_int8<Index, 4 + Index / 2, 6 + Index % 2>();
}
template <int Index>
inline void store_dots(amx_dots& to) {
  tile_store<Index>(to[Index % 2], 64);
}

/// Adds the scaled dots of `count` groups from `first` on to a quarter of the rows, like accumulate_groups.
inline void add_dots(float* c, bool fresh, const std::uint32_t* rows, const unpacked_block& weights,
                     const amx_dots* dots, std::size_t first, std::size_t count, std::size_t first_row) {
  constexpr int R = amx_rows / 4, V = quantised_vectors;
  c += first_row * quantised_panel_outputs;
  rows += first_row * activation_record;
  vec sums[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      sums[r][v] = fresh ? zero() : load(c + r * quantised_panel_outputs + v * lanes);
  for (std::size_t group = first; group < first + count; ++group, ++dots) {
    scale factors[V];
    for (int v = 0; v < V; ++v)
      factors[v] = make_scale(load(&weights.factors[group][0][v * lanes]));
    for (int r = 0; r < R; ++r) {
      const vec x = f32_operand::row(rows + (group * amx_rows + r) * activation_record + 8);
      for (int v = 0; v < V; ++v)
        sums[r][v] = fma(scaled(add_magic(load_ints((*dots)[v][first_row + r])), factors[v]), x, sums[r][v]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      store(c + r * quantised_panel_outputs + v * lanes, sums[r][v]);
}

/// `rows`, a multiple of 16, times an unpacked block of signed codes. Meanwhile prefetches the block behind it, at
/// `next`.
inline void accumulate_amx(float* c, bool fresh, const std::uint32_t* activations, std::size_t rows,
                           const unsigned char* next, std::size_t bytes, std::size_t groups,
                           quantised_scratch& scratch) {
  const std::size_t steps = rows / amx_rows * ((groups + amx_step - 1) / amx_step);
  const std::size_t fetch_lines = bytes / 64 / (4 * steps) + 1; // at a time: more would delay other loads
  struct {
    std::size_t row = 0, group = 0;
    void advance(std::size_t groups) {
      group += amx_step;
      if (group >= groups) {
        group = 0;
        row += amx_rows;
      }
    }
  } made, added;
  for (std::size_t step = 0; step < steps + 2; ++step) {
    const auto make = [&]<int Index>(amx_index<Index>) {
      store_dots<Index>(scratch.dots[step % 2][Index / 2]);
      const std::size_t group = made.group + Index / 2;
      if (step < steps && group < groups)
        make_dots<Index>(activations + made.row * activation_row + group * amx_rows * activation_record,
                         scratch.weights.codes[group][0][0]);
    };
    const auto add = [&](std::size_t quarter) {
      for (std::size_t i = 0; i < fetch_lines; ++i, next += 64)
        __builtin_prefetch(next, 0, 2);
      if (step < 2)
        return;
      const std::size_t count = groups - added.group < amx_step ? groups - added.group : amx_step;
      add_dots(c + added.row * quantised_panel_outputs, fresh && added.group == 0,
               activations + added.row * activation_row, scratch.weights, scratch.dots[(step - 1) % 2], added.group,
               count, quarter * amx_rows / 4);
    };
    make(amx_index<0>());
    add(0);
    make(amx_index<1>());
    add(1);
    make(amx_index<2>());
    add(2);
    make(amx_index<3>());
    add(3);
    made.advance(groups);
    if (step >= 2)
      added.advance(groups);
  }
}

} // namespace
} // namespace troupe::kernels
