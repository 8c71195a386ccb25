// The inner loops of quantised linear layers: a panel's weights over one block of K times tiles of rows. Weights are
// used as stored or, for many rows, unpacked once to bytes and floats. Only for the target units.
#pragma once

#include "kernels/cpu/isa/int_simd.hpp"
#include "kernels/cpu/isa/tile.hpp"

namespace troupe::kernels {
namespace {

inline constexpr int quantised_vectors = 2; // per panel

// Rows and vectors of a tile, so that its integer sums fit in registers. One or two rows are bound by memory: they take
// both vectors of a panel at once, to read it in order. `fetch_distance`: prefetch distance of weights that are read in
// order, in bytes.
#if defined(__AVX512F__) || (defined(TROUPE_SVE) && __ARM_FEATURE_SVE_BITS == 512)
template <weight_kind>
inline constexpr int register_rows = 6;
inline constexpr int register_vectors = 2;
inline constexpr std::size_t fetch_distance = 8192;
#elif defined(TROUPE_SVE) && __ARM_FEATURE_SVE_BITS == 256
template <weight_kind>
inline constexpr int register_rows = 6;
inline constexpr int register_vectors = 1;
inline constexpr std::size_t fetch_distance = 8192;
#elif defined(TROUPE_PAIR_SUMS)
// Narrower codes also keep sums of pairs in registers.
template <weight_kind Kind>
inline constexpr int register_rows = layout_of(Kind).zero == 128 ? 4
  : layout_of(Kind).code_bits <= 4                               ? 6
  : layout_of(Kind).code_bits == 5                               ? 3
  : layout_of(Kind).code_bits == 6                               ? 5
                                                                 : 4;
inline constexpr int register_vectors = 1;
inline constexpr std::size_t fetch_distance = 1024;
#else
template <weight_kind>
inline constexpr int register_rows = 3;
inline constexpr int register_vectors = 1;
inline constexpr std::size_t fetch_distance = 8192;
#endif

/// Vectors of a tile of so many rows.
constexpr int quantised_tile_vectors(std::size_t rows) { return rows <= 2 ? quantised_vectors : register_vectors; }

/// Whether codes have 8 bits, or are made to, and 128 means weight 0.
template <weight_kind Kind>
inline constexpr bool wide = layout_of(Kind).zero == 128;

/// Words of activations of a row in a block of K.
inline constexpr std::size_t activation_row = group_block * activation_record;

/// Reads the groups of a panel as stored.
template <weight_kind Kind>
class stored_groups {
public:
  static constexpr auto layout = layout_of(Kind);

  // Always inlined: GCC leaves some out of the largest loops, and then they shift by variables.

  explicit stored_groups(const unsigned char* block) : header_(block), group_(block + layout.header_bytes) {}

  /// Codes of four inputs of the 16 outputs of a vector, as an operand of `dot`.
  [[gnu::always_inline]] auto prepared(int line, int vector) const {
    if constexpr (wide<Kind>)
      return prepare_wide(signed_wide(codes(line, vector)));
    else
      return codes(line, vector);
  }
  [[gnu::always_inline]] ivec codes(int line, int vector) const {
    if constexpr (layout.code_bits == 8)
      return stored_line(line, vector);
    else if constexpr (layout.code_bits < 4)
      return narrow_codes(line, vector);
    else
      return nibble_codes(line, vector);
  }
  [[gnu::always_inline]] vec factor(int part, int vector) const {
    if constexpr (layout.e4m3_scales) {
      const auto* codes = reinterpret_cast<const std::int8_t*>(scales());
      return load_e4m3(codes + part * quantised_panel_outputs + vector * lanes) * broadcast(256 * layout.unit);
    }
    const vec d = layout.bf16_scales ? load_bf16(scales() + vector * lanes) : load_f16(scales() + vector * lanes);
    if constexpr (layout.group_bytes == layout.code_bytes)
      return d;
    return layout.super ? d * load_bytes(factors() + part * quantised_panel_outputs + vector * lanes) : d;
  }
  [[gnu::always_inline]] vec minimum(int part, int vector) const {
    const vec m = load_f16(scales() + quantised_panel_outputs + vector * lanes);
    return layout.super ? m * load_bytes(factors() + (layout.parts + part) * quantised_panel_outputs + vector * lanes)
                        : m;
  }
  void next() {
    group_ += layout.group_bytes;
    if (layout.super && ++index_ % super_groups == 0) {
      header_ = group_;
      group_ += layout.header_bytes;
    }
  }

private:
  /// Codes of 4 to 6 bits, or what the table has for them.
  [[gnu::always_inline]] ivec nibble_codes(int line, int vector) const {
    const ivec both = stored_line(line % 4, vector);
    const ivec low = line < 4 ? low_halves(both) : high_halves(both);
    constexpr int more = layout.code_bits - 4;
    if constexpr (layout.has_table)
      return looked_up(layout.table, low);
    else if constexpr (more == 0)
      return low;
    else
      return add_high_bits(low, stored_line(4 + line * more / 8, vector), line * more % 8, (16 << more) - 16);
  }
  /// Codes of 1 to 3 bits, or what the table has for them.
  [[gnu::always_inline]] ivec narrow_codes(int line, int vector) const {
    if constexpr (layout.code_bits == 1)
      return looked_up(layout.table, bits_of(stored_line(0, vector), line, 1));
    const ivec pairs = bits_of(stored_line(line / 4, vector), line % 4 * 2, 3);
    if constexpr (layout.has_table)
      return looked_up(layout.table, pairs);
    else if constexpr (layout.code_bits == 2)
      return pairs;
    else
      return joined(pairs, bits_of(stored_line(2, vector), line - 2, 4));
  }
  [[gnu::always_inline]] ivec stored_line(int line, int vector) const {
    return load_ints(group_ + (line * quantised_vectors + vector) * 64);
  }
  const std::uint16_t* scales() const {
    return reinterpret_cast<const std::uint16_t*>(layout.super ? header_ : group_ + layout.code_bytes);
  }
  const std::int8_t* factors() const { return reinterpret_cast<const std::int8_t*>(group_ + layout.code_bytes); }

  const unsigned char* header_;
  const unsigned char* group_;
  std::size_t index_ = 0;
};

/// A block of a panel with a byte per code, and factors and minima as floats.
struct unpacked_block {
  alignas(64) unsigned char codes[group_block][8][quantised_vectors][64];
  alignas(64) float factors[group_block][2][quantised_panel_outputs];
  alignas(64) float minima[group_block][2][quantised_panel_outputs];
};

/// Reads the groups of an unpacked block.
template <weight_kind Kind>
class unpacked_groups {
public:
  static constexpr auto layout = layout_of(Kind);

  explicit unpacked_groups(const unpacked_block& block) : block_(&block) {}

  auto prepared(int line, int vector) const {
    const ivec codes = load_ints(block_->codes[index_][line][vector]);
    if constexpr (wide<Kind>)
      return prepare_wide(codes);
    else
      return codes;
  }
  vec factor(int part, int vector) const { return load(&block_->factors[index_][part][vector * lanes]); }
  vec minimum(int part, int vector) const { return load(&block_->minima[index_][part][vector * lanes]); }
  void next() { ++index_; }

private:
  const unpacked_block* block_;
  std::size_t index_ = 0;
};

/// Unpacks the groups of a block. `change` is applied to the codes.
template <weight_kind Kind, class Change>
inline void unpack(unpacked_block& to, const unsigned char* block, std::size_t groups, const Change& change) {
  constexpr auto layout = layout_of(Kind);
  stored_groups<Kind> from(block);
  for (std::size_t group = 0; group < groups; ++group, from.next())
    for (int v = 0; v < quantised_vectors; ++v) {
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        const int line = layout.code_bits == 8 ? i : i / 2 + i % 2 * 4; // both halves of a line in turn
        store_ints(to.codes[group][line][v], change(from.codes(line, v)));
      }
      for (int part = 0; part < layout.parts; ++part) {
        store(&to.factors[group][part][v * lanes], from.factor(part, v));
        if constexpr (layout.minimum)
          store(&to.minima[group][part][v * lanes], from.minimum(part, v));
      }
    }
}

/// dots[r][v] = the integer sums over one part of a group, starting from the rows' start words.
template <int R, int V, class Groups>
[[gnu::always_inline]] inline void sum_products(ivec (&dots)[R][V], const Groups& weights, int vector, int part,
                                                const std::uint32_t* rows) {
  constexpr auto layout = Groups::layout;
  constexpr int lines = 8 / layout.parts;
  const auto start = [&](int r) {
    constexpr std::uint32_t none = magic_bits;
    return broadcast_word(layout.parts == 2 && layout.minimum ? &none : rows + r * activation_record + 9 + part);
  };
  const auto line_of = [&](int i) {
    return layout.code_bits == 8 || layout.parts == 2 ? part * lines + i : i / 2 + i % 2 * 4;
  };
#if defined(TROUPE_PAIR_SUMS)
  if constexpr (layout.zero != 128) {
    pair_sums sums[R][V];
    constexpr int fitting = pair_lines(layout.code_bits) < lines ? pair_lines(layout.code_bits) : lines;
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

/// Weights to prefetch: the group that is needed `fetch_distance` later where weights are read once and in order, else
/// `step` bytes with each group, to L2: more at once would delay other loads.
struct further_weights {
  const unsigned char* from;
  std::size_t step;
  bool in_order;

  template <std::size_t GroupBytes>
  [[gnu::always_inline]] void fetch() {
    if (in_order) {
      for (std::size_t i = 0; i < GroupBytes; i += 64)
        __builtin_prefetch(from + i);
      from += GroupBytes;
      return;
    }
    for (std::size_t i = 0; i < step; i += 64)
      __builtin_prefetch(from + i, 0, 2);
    from += step;
  }
};

/// R rows times V vectors of a panel from vector `vector` on, over `groups` groups with records `stride` words
/// apart. Meanwhile prefetches further weights.
template <int R, int V, class Groups>
inline void accumulate_groups(float* c, bool fresh, const std::uint32_t* rows, std::size_t stride, Groups weights,
                              int vector, std::size_t groups, further_weights further) {
  constexpr auto layout = Groups::layout;
  constexpr std::size_t c_stride = quantised_panel_outputs;
  vec sums[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      sums[r][v] = fresh ? zero() : load(c + r * c_stride + v * lanes);
  for (std::size_t group = 0; group < groups; ++group, weights.next(), rows += stride) {
    further.fetch<layout.group_bytes>();
#pragma GCC unroll 2
    for (int part = 0; part < layout.parts; ++part) {
      ivec dots[R][V];
      sum_products(dots, weights, vector, part, rows);
      scale factors[V];
      for (int v = 0; v < V; ++v)
        factors[v] = make_scale(weights.factor(part, vector + v));
      for (int r = 0; r < R; ++r) {
        const vec x = f32_operand::row(rows + r * activation_record + (part == 0 ? 8 : 11));
        for (int v = 0; v < V; ++v)
          sums[r][v] = fma(scaled(dots[r][v], factors[v]), x, sums[r][v]);
      }
    }
    for (int part = 0; layout.minimum && part < layout.parts; ++part) {
      vec minima[V];
      for (int v = 0; v < V; ++v)
        minima[v] = weights.minimum(part, vector + v);
      for (int r = 0; r < R; ++r) {
        const vec sum = f32_operand::row(rows + r * activation_record + (layout.parts == 1 ? 11 : 9 + part));
        for (int v = 0; v < V; ++v)
          sums[r][v] = fma(minima[v], sum, sums[r][v]);
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      store(c + r * c_stride + v * lanes, sums[r][v]);
}

} // namespace
} // namespace troupe::kernels
