// The inner loops of quantised linear layers: a panel's weights over one block of K, as they are stored or unpacked to
// bytes and floats once for many rows, times tiles of rows. Only for the target units.
#pragma once

#include "kernels/cpu/isa/amx.hpp"
#include "kernels/cpu/isa/int_simd.hpp"
#include "kernels/cpu/isa/tile.hpp"

namespace troupe::kernels {
namespace {

inline constexpr int quantised_vectors = 2; // of a panel

// Rows and vectors of a tile: the integer sums stay in registers. Up to two rows, which memory keeps waiting, take both
// vectors of a panel at once, so that it is read in order. `fetch_distance` is how far ahead of their use stored weights
// are asked for, in bytes.
#if defined(__AVX512F__)
template <weight_kind>
inline constexpr int register_rows = 6;
inline constexpr int register_vectors = 2;
inline constexpr std::size_t fetch_distance = 8192;
#elif defined(TROUPE_PAIR_SUMS)
template <weight_kind Kind> // of 5 bits, sums of pairs and of dots are both in registers
inline constexpr int register_rows = layout_of(Kind).code_bits == 4 ? 6
  : layout_of(Kind).code_bits == 5                                  ? 3
  : layout_of(Kind).code_bits == 6                                  ? 5
                                                                    : 4;
inline constexpr int register_vectors = 1;
inline constexpr std::size_t fetch_distance = 1024;
#else
template <weight_kind>
inline constexpr int register_rows = 3;
inline constexpr int register_vectors = 1;
inline constexpr std::size_t fetch_distance = 8192;
#endif

/// Codes of 8 bits, of which 128 is weight 0.
template <weight_kind Kind>
inline constexpr bool wide = layout_of(Kind).zero == 128;

/// Words of activations of a row in a block of K.
inline constexpr std::size_t activation_row = group_block * activation_record;

/// The groups of a panel, as they are stored.
template <weight_kind Kind>
class stored_groups {
public:
  static constexpr auto layout = layout_of(Kind);

  explicit stored_groups(const unsigned char* block) : header_(block), group_(block + layout.header_bytes) {}

  /// Four inputs of the 16 outputs of a vector, as dots take them.
  auto prepared(int line, int vector) const {
    if constexpr (wide<Kind>)
      return prepare_wide(signed_wide(codes(line, vector)));
    else
      return codes(line, vector);
  }
  ivec codes(int line, int vector) const {
    if constexpr (layout.code_bits == 8)
      return stored_line(line, vector);
    const ivec both = stored_line(line % 4, vector);
    const ivec low = line < 4 ? low_halves(both) : high_halves(both);
    constexpr int more = layout.code_bits - 4;
    if constexpr (more == 0)
      return low;
    else
      return add_high_bits(low, stored_line(4 + line * more / 8, vector), line * more % 8, (16 << more) - 16);
  }
  vec factor(int part, int vector) const {
    const vec d = load_f16(scales() + vector * lanes);
    return layout.super ? d * load_bytes(factors() + part * quantised_panel_outputs + vector * lanes) : d;
  }
  vec minimum(int vector) const {
    const vec m = load_f16(scales() + quantised_panel_outputs + vector * lanes);
    return layout.super ? m * load_bytes(factors() + quantised_panel_outputs + vector * lanes) : m;
  }
  /// Asks for what is wanted after some more groups.
  void fetch() const {
    for (std::size_t i = 0; i < layout.group_bytes; i += 64)
      __builtin_prefetch(group_ + fetch_distance + i);
  }
  void next() {
    group_ += layout.group_bytes;
    if (layout.super && ++index_ % super_groups == 0) {
      header_ = group_;
      group_ += layout.header_bytes;
    }
  }

private:
  ivec stored_line(int line, int vector) const { return load_ints(group_ + (line * quantised_vectors + vector) * 64); }
  const std::uint16_t* scales() const {
    return reinterpret_cast<const std::uint16_t*>(layout.super ? header_ : group_ + layout.code_bytes);
  }
  const std::int8_t* factors() const { return reinterpret_cast<const std::int8_t*>(group_ + layout.code_bytes); }

  const unsigned char* header_;
  const unsigned char* group_;
  std::size_t index_ = 0;
};

/// A block of a panel with a byte for each code, factors and minima as floats.
struct unpacked_block {
  alignas(64) unsigned char codes[group_block][8][quantised_vectors][64];
  alignas(64) float factors[group_block][2][quantised_panel_outputs];
  alignas(64) float minima[group_block][quantised_panel_outputs];
};

/// The same from an unpacked block. Meanwhile what follows the block comes into L2, from `ahead` on, `step` bytes with
/// each group: more at once would keep other loads waiting.
template <weight_kind Kind>
class unpacked_groups {
public:
  static constexpr auto layout = layout_of(Kind);

  unpacked_groups(const unpacked_block& block, const unsigned char* ahead, std::size_t step)
    : block_(&block), ahead_(ahead), step_(step) {}

  auto prepared(int line, int vector) const {
    const ivec codes = load_ints(block_->codes[index_][line][vector]);
    if constexpr (wide<Kind>)
      return prepare_wide(codes);
    else
      return codes;
  }
  vec factor(int part, int vector) const { return load(&block_->factors[index_][part][vector * lanes]); }
  vec minimum(int vector) const { return load(&block_->minima[index_][vector * lanes]); }
  void fetch() const {
    for (std::size_t i = 0; i < step_; i += 64)
      __builtin_prefetch(ahead_ + i, 0, 2);
  }
  void next() {
    ++index_;
    ahead_ += step_;
  }

private:
  const unpacked_block* block_;
  const unsigned char* ahead_;
  std::size_t step_;
  std::size_t index_ = 0;
};

/// `change(codes)` is what is stored.
template <weight_kind Kind, class Change>
inline void unpack(unpacked_block& to, const unsigned char* block, std::size_t groups, const Change& change) {
  constexpr auto layout = layout_of(Kind);
  stored_groups<Kind> from(block);
  for (std::size_t group = 0; group < groups; ++group, from.next())
    for (int v = 0; v < quantised_vectors; ++v) {
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        const int line = layout.code_bits == 8 ? i : i / 2 + i % 2 * 4; // both halves of a line one after the other
        store_ints(to.codes[group][line][v], change(from.codes(line, v)));
      }
      for (int part = 0; part < layout.parts; ++part)
        store(&to.factors[group][part][v * lanes], from.factor(part, v));
      if constexpr (layout.minimum)
        store(&to.minima[group][v * lanes], from.minimum(v));
    }
}

/// dots[r][v] = the integer sums over one part of a group, which begin with the rows' start words.
template <int R, int V, class Groups>
[[gnu::always_inline]] inline void sum_products(ivec (&dots)[R][V], const Groups& weights, int vector, int part,
                                                const std::uint32_t* rows) {
  constexpr auto layout = Groups::layout;
  constexpr int lines = 8 / layout.parts;
  const auto start = [&](int r) { return broadcast_word(rows + r * activation_record + 9 + part); };
  const auto line_of = [&](int i) {
    return layout.code_bits == 8 || layout.parts == 2 ? part * lines + i : i / 2 + i % 2 * 4;
  };
#if defined(TROUPE_PAIR_SUMS)
  if constexpr (layout.code_bits < 8) {
    pair_sums sums[R][V];
    constexpr int fitting = pair_lines(layout.code_bits);
#pragma GCC unroll 8
    for (int i = 0; i < lines; ++i) {
      ivec codes[V];
      for (int v = 0; v < V; ++v)
        codes[v] = weights.prepared(line_of(i), vector + v);
      for (int r = 0; r < R; ++r) {
        const auto x = broadcast_word(rows + r * activation_record + line_of(i));
        for (int v = 0; v < V; ++v)
          sums[r][v] = i % fitting == 0 ? pairs(codes[v], x) : sums[r][v] + pairs(codes[v], x);
      }
      if (i % fitting == fitting - 1)
        for (int r = 0; r < R; ++r)
          for (int v = 0; v < V; ++v)
            dots[r][v] = add_pairs(i < fitting ? start(r) : dots[r][v], sums[r][v]);
    }
    return;
  }
#endif
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      dots[r][v] = start(r);
#pragma GCC unroll 8
  for (int i = 0; i < lines; ++i) {
    decltype(weights.prepared(0, 0)) codes[V];
    for (int v = 0; v < V; ++v)
      codes[v] = weights.prepared(line_of(i), vector + v);
    for (int r = 0; r < R; ++r) {
      const auto x = broadcast_word(rows + r * activation_record + line_of(i));
      for (int v = 0; v < V; ++v)
        dots[r][v] = dot(dots[r][v], codes[v], x);
    }
  }
}

/// R rows times V vectors of a panel from vector `vector` on, over `groups` groups, whose records are `stride` words
/// apart. `fetch`: more weights are asked for meanwhile.
template <int R, int V, class Groups>
inline void accumulate_groups(float* c, bool fresh, const std::uint32_t* rows, std::size_t stride, Groups weights,
                              int vector, std::size_t groups, bool fetch) {
  constexpr auto layout = Groups::layout;
  constexpr std::size_t c_stride = quantised_panel_outputs;
  vec sums[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      sums[r][v] = fresh ? zero() : load(c + r * c_stride + v * lanes);
  for (std::size_t group = 0; group < groups; ++group, weights.next(), rows += stride) {
    if (fetch)
      weights.fetch();
#pragma GCC unroll 2
    for (int part = 0; part < layout.parts; ++part) {
      ivec dots[R][V];
      sum_products(dots, weights, vector, part, rows);
      scale factors[V];
      for (int v = 0; v < V; ++v)
        factors[v] = make_scale(weights.factor(part, vector + v));
      for (int r = 0; r < R; ++r) {
        const vec x = f32_operand::row(rows + r * activation_record + 8);
        for (int v = 0; v < V; ++v)
          sums[r][v] = fma(scaled(dots[r][v], factors[v]), x, sums[r][v]);
      }
    }
    if constexpr (layout.minimum) {
      vec minima[V];
      for (int v = 0; v < V; ++v)
        minima[v] = weights.minimum(vector + v);
      for (int r = 0; r < R; ++r) {
        const vec sum = f32_operand::row(rows + r * activation_record + 11);
        for (int v = 0; v < V; ++v)
          sums[r][v] = fma(minima[v], sum, sums[r][v]);
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      store(c + r * c_stride + v * lanes, sums[r][v]);
}

#if defined(__AMX_INT8__)

// Tiles of 16 rows, 16 outputs and the inputs that share a scale. Their dots leave the tile registers through a buffer
// in L1 and are scaled from there. Measured on Sapphire Rapids: a tile costs 5 ns, and so does storing it, but both
// overlap only if the store comes some tiles later; while tile registers are in use, one of the two ports for floats
// rests, but not for integers. The unit of work is therefore a step of two scales for 16 rows: made, stored in the next
// step and scaled in the one after, turned into floats by an integer addition. What needs more floats than a scale
// (minima, two scales in a group) is faster without.

template <weight_kind Kind>
inline constexpr bool in_amx_tiles = layout_of(Kind).parts == 1 && !layout_of(Kind).minimum;

inline constexpr std::size_t amx_step = 2;

using amx_dots = std::int32_t[quantised_vectors][amx_rows][lanes];

struct quantised_scratch {
  unpacked_block weights;
  alignas(64) amx_dots dots[2][amx_step];
};

/// Configures the tile registers, and releases them at the end: 0 to 3 dots, 4 and 5 activations, 6 and 7 weights.
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

/// The code of weight 0 becomes 0.
template <int Zero>
inline ivec signed_codes(ivec codes) {
  return {_mm512_sub_epi8(codes.v, _mm512_set1_epi8(static_cast<char>(Zero)))};
}

template <int>
struct amx_index {};

/// Dots of 16 rows and 16 outputs over one scale's inputs: those of a step in turn, vector by vector.
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

/// Adds the scaled dots of `count` groups from `first` on to a quarter of the rows, as accumulate_groups does.
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

/// `rows`, a multiple of 16, with a block. Meanwhile the next one, which lies behind it, is fetched.
template <weight_kind Kind>
inline void accumulate_amx(float* c, bool fresh, const std::uint32_t* activations, std::size_t rows,
                           const unsigned char* block, std::size_t groups, quantised_scratch& scratch) {
  unpack<Kind>(scratch.weights, block, groups, signed_codes<layout_of(Kind).zero>);
  const std::size_t bytes = layout_of(Kind).bytes(groups);
  const unsigned char* next = block + bytes;
  const std::size_t steps = rows / amx_rows * ((groups + amx_step - 1) / amx_step);
  const std::size_t fetch_lines = bytes / 64 / (4 * steps) + 1; // at a time: more would keep the loads waiting
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

#else

struct quantised_scratch {
  unpacked_block weights;
};

#endif

} // namespace
} // namespace troupe::kernels
