// Products with quantised weights that are kept by inputs: without those that only zeros would multiply, or whole. The
// sums have the bits of quantised_kernel.hpp: integer dots of a group are exact in any order, and inputs whose codes are
// 0 add nothing. Only for the target units.
#pragma once

#include "kernels/cpu/isa/linear_store.hpp"
#include "kernels/cpu/isa/quantised_tiles.hpp"

namespace troupe::kernels {
namespace {

/// Interleaves the bytes of four lines of 64 outputs: to[v] has four codes of each of 16 outputs.
inline void interleave(const ivec (&lines)[4], ivec (&to)[4]) {
#if defined(__AVX512F__)
  const auto low = _mm512_unpacklo_epi8(lines[0].v, lines[1].v), high = _mm512_unpackhi_epi8(lines[0].v, lines[1].v);
  const auto low2 = _mm512_unpacklo_epi8(lines[2].v, lines[3].v), high2 = _mm512_unpackhi_epi8(lines[2].v, lines[3].v);
  to[0] = {_mm512_unpacklo_epi16(low, low2)};
  to[1] = {_mm512_unpackhi_epi16(low, low2)};
  to[2] = {_mm512_unpacklo_epi16(high, high2)};
  to[3] = {_mm512_unpackhi_epi16(high, high2)};
#elif defined(__AVX2__)
  const auto half = [](__m256i a, __m256i b, __m256i c, __m256i d, __m256i(&out)[4]) {
    const auto low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
    const auto low2 = _mm256_unpacklo_epi8(c, d), high2 = _mm256_unpackhi_epi8(c, d);
    out[0] = _mm256_unpacklo_epi16(low, low2);
    out[1] = _mm256_unpackhi_epi16(low, low2);
    out[2] = _mm256_unpacklo_epi16(high, high2);
    out[3] = _mm256_unpackhi_epi16(high, high2);
  };
  __m256i first[4], second[4];
  half(lines[0].a, lines[1].a, lines[2].a, lines[3].a, first);
  half(lines[0].b, lines[1].b, lines[2].b, lines[3].b, second);
  for (int v = 0; v < 4; ++v)
    to[v] = {first[v], second[v]};
#else
  std::uint8_t from[4][64], out[64];
  for (int k = 0; k < 4; ++k)
    store_ints(from[k], lines[k]);
  for (int v = 0; v < 4; ++v) {
    for (std::size_t i = 0; i < 16; ++i)
      for (int k = 0; k < 4; ++k)
        out[4 * i + static_cast<std::size_t>(k)] = from[k][by_inputs_place(16 * static_cast<std::size_t>(v) + i)];
    to[v] = load_ints(out);
  }
#endif
}

/// 64 outputs of a panel.
template <weight_kind Kind>
class input_block {
public:
  static constexpr auto layout = layout_of(Kind);

  /// Block `index` of all blocks of 64 outputs, of a matrix of so many blocks (padded) and groups.
  input_block(const void* weights, std::size_t index, std::size_t blocks, std::size_t groups)
    : panel_(layout, width_of(index, blocks)), own_(index % (input_panel_outputs / 64)) {
    constexpr input_panel whole(layout, input_panel_outputs);
    base_ = static_cast<const unsigned char*>(weights) + index / (input_panel_outputs / 64) * whole.bytes(groups);
    width_ = width_of(index, blocks);
  }

  /// The codes of one input, in the order of by_inputs_place.
  ivec line(std::size_t group, std::size_t input) const {
    const auto* row = base_ + panel_.at(group) + input * panel_.row;
    if constexpr (layout.code_bits == 8)
      return load_ints(row + own_ * 64);
    const ivec both = load_ints(row + own_ / 2 * 64);
    const ivec nibbles = own_ % 2 == 0 ? low_halves(both) : high_halves(both);
    if constexpr (layout.code_bits == 4)
      return nibbles;
    const ivec pairs = load_ints(row + width_ / 2 + own_ / 4 * 64);
    return joined(nibbles, bits_of(pairs, static_cast<int>(own_ % 4) * 2 - 4, 0x30));
  }

  void lines(std::size_t group, std::uint32_t inputs, ivec (&to)[4]) const {
    ivec rows[4];
    for (int i = 0; i < 4; ++i)
      rows[i] = line(group, inputs >> 8 * i & 0xff);
    interleave(rows, to);
  }

  vec factor(std::size_t group, int part, int vector) const {
    const vec d = load_f16(scales(group) + place(vector));
    return layout.super ? d * load_bytes(factors(group) + static_cast<std::size_t>(part) * width_ + place(vector)) : d;
  }
  vec minimum(std::size_t group, int part, int vector) const {
    const vec m = load_f16(scales(group) + width_ + place(vector));
    return layout.super
      ? m * load_bytes(factors(group) + static_cast<std::size_t>(layout.parts + part) * width_ + place(vector))
      : m;
  }

  /// Prefetches what the fours of inputs of a group, and its scales, need.
  void fetch(std::size_t group, const std::uint32_t* fours, std::size_t count) const {
    const auto* at = base_ + panel_.at(group);
    for (std::size_t q = 0; q < count; ++q)
      for (int i = 0; i < 4; ++i) {
        const auto* row = at + (fours[q] >> 8 * i & 0xff) * panel_.row;
        if constexpr (layout.code_bits == 8)
          __builtin_prefetch(row + own_ * 64);
        else if (own_ % 2 == 0)
          __builtin_prefetch(row + own_ / 2 * 64);
        if (layout.code_bits == 6 && own_ % 4 == 0)
          __builtin_prefetch(row + width_ / 2 + own_ / 4 * 64);
      }
    fetch_scales(group);
  }
  /// Prefetches a share of what `count` blocks from this one on, of one panel, need of a group: inputs [first, end) of all
  /// of them, and this one's scales. So a task's pieces are read in the order of memory.
  void fetch_share(std::size_t group, std::size_t first, std::size_t end, std::size_t count) const {
    const std::size_t step = layout.code_bits == 8 ? 1 : 2; // blocks of a line
    for (std::size_t i = first; i < end; ++i) {
      const auto* row = base_ + panel_.at(group) + i * panel_.row;
      for (std::size_t b = own_ / step; b < (own_ + count + step - 1) / step; ++b)
        __builtin_prefetch(row + b * 64, 0, 2);
      if constexpr (layout.code_bits == 6)
        for (std::size_t b = own_ / 4; b < (own_ + count + 3) / 4; ++b)
          __builtin_prefetch(row + width_ / 2 + b * 64, 0, 2);
    }
  }
  void fetch_scales(std::size_t group) const {
    if constexpr (layout.super) {
      for (int i = 0; i < layout.parts * (layout.minimum ? 2 : 1); ++i)
        __builtin_prefetch(factors(group) + static_cast<std::size_t>(i) * width_ + own_ * 64);
    } else {
      for (std::size_t i = 0; i < 64; i += 32) {
        __builtin_prefetch(scales(group) + own_ * 64 + i);
        if constexpr (layout.minimum)
          __builtin_prefetch(scales(group) + width_ + own_ * 64 + i);
      }
    }
  }

private:
  static constexpr std::size_t width_of(std::size_t index, std::size_t blocks) {
    constexpr std::size_t most = input_panel_outputs / 64;
    const std::size_t left = blocks - index / most * most;
    return (left < most ? left : most) * 64;
  }
  std::size_t place(int vector) const { return own_ * 64 + static_cast<std::size_t>(vector) * lanes; }
  const std::uint16_t* scales(std::size_t group) const {
    return reinterpret_cast<const std::uint16_t*>(
      base_ + (layout.super ? panel_.header_at(group) : panel_.at(group) + 32 * panel_.row));
  }
  const std::int8_t* factors(std::size_t group) const {
    return reinterpret_cast<const std::int8_t*>(base_ + panel_.at(group) + 32 * panel_.row);
  }

  input_panel panel_;
  std::size_t own_, width_ = 0;
  const unsigned char* base_ = nullptr;
};

template <weight_kind Kind>
auto prepared_codes(ivec codes) {
  if constexpr (wide<Kind>)
    return prepare_wide(signed_wide(codes));
  else
    return codes;
}

/// Sums of R rows from `row` on over one kept group and 64 outputs. c: [2 panels of 32][rows][32].
template <weight_kind Kind, int R>
inline void add_kept_group(const linear_op& op, const kept_group& kept, std::size_t index,
                           const input_block<Kind>& block, std::size_t row, float* c) {
  constexpr auto layout = layout_of(Kind);
  const std::size_t panel_stride = op.rows * quantised_panel_outputs;
  const std::uint32_t* records[R];
  const std::uint32_t* quads[R];
  for (int r = 0; r < R; ++r) {
    const auto* own = op.activations + (row + static_cast<std::size_t>(r)) * op.activation_block;
    records[r] = own + index * kept_record;
    quads[r] = own + op.kept_group_count * kept_record;
  }
  const auto at = [&](int r, int v) {
    return c + static_cast<std::size_t>(v / 2) * panel_stride +
      (row + static_cast<std::size_t>(r)) * quantised_panel_outputs + static_cast<std::size_t>(v % 2) * lanes;
  };
  for (int part = 0; part < layout.parts; ++part) {
    const std::uint32_t begin = part == 0 ? kept.first : kept.middle, end = part == 0 ? kept.middle : kept.end;
    if (begin == end)
      continue;
    ivec dots[R][4];
    constexpr std::uint32_t none = magic_bits;
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < 4; ++v)
        dots[r][v] = broadcast_word(layout.parts == 2 && layout.minimum ? &none : records[r] + 1 + part);
    for (std::uint32_t q = begin; q < end; ++q) {
      ivec codes[4];
      block.lines(kept.group, op.kept[q], codes);
      for (int v = 0; v < 4; ++v) {
        const auto operand = prepared_codes<Kind>(codes[v]);
        for (int r = 0; r < R; ++r)
          dots[r][v] = dot(dots[r][v], operand, broadcast_word(quads[r] + q));
      }
    }
    for (int v = 0; v < 4; ++v) {
      const auto factor = make_scale(block.factor(kept.group, part, v));
      for (int r = 0; r < R; ++r)
        store(at(r, v), fma(scaled(dots[r][v], factor), f32_operand::row(records[r]), load(at(r, v))));
    }
  }
  for (int part = 0; layout.minimum && part < layout.parts; ++part)
    for (int v = 0; v < 4; ++v) {
      const vec minimum = block.minimum(kept.group, part, v);
      for (int r = 0; r < R; ++r)
        store(at(r, v),
              fma(minimum, f32_operand::row(records[r] + (layout.parts == 1 ? 3 : 1 + part)), load(at(r, v))));
    }
}

/// Kept groups ahead of the one at hand whose weights are prefetched.
inline constexpr std::size_t kept_groups_ahead = 3;

/// Groups outside, blocks of outputs inside: what is left of a group lies together.
template <weight_kind Kind>
void accumulate_kept_inputs(const linear_op& op, const linear_task& task, std::size_t blocks, float* sums) {
#if defined(__AVX512F__)
  constexpr int most = 4;
#else
  constexpr int most = 1;
#endif
  const std::size_t block_floats = op.rows * 64;
  for (std::size_t i = 0; i < task.panels * block_floats; i += lanes)
    store(sums + i, zero());
  for (std::size_t g = 0; g < op.kept_group_count; ++g)
    for (std::size_t b = 0; b < task.panels; ++b) {
      const input_block<Kind> block(op.weights, task.first_panel + b, blocks, op.words);
      if (g + kept_groups_ahead < op.kept_group_count) {
        const auto& next = op.kept_groups[g + kept_groups_ahead];
        block.fetch(next.group, op.kept + next.first, next.end - next.first);
      }
      for (std::size_t row = 0; row < op.rows; row += most)
        with_rows<most>(static_cast<int>(op.rows - row < most ? op.rows - row : most), [&]<int R>() {
          add_kept_group<Kind, R>(op, op.kept_groups[g], g, block, row, sums + b * block_floats);
        });
    }
}

/// Unpacks groups [first, first + groups) of 64 outputs to two panels of 32. `fetch(g)` prefetches what is needed later.
template <weight_kind Kind, class Fetch>
inline void unpack_inputs(unpacked_block (&to)[2], const input_block<Kind>& block, std::size_t first,
                          std::size_t groups, const Fetch& fetch) {
  constexpr auto layout = layout_of(Kind);
  for (std::size_t g = 0; g < groups; ++g) {
    fetch(g);
    for (std::uint32_t line = 0; line < 8; ++line) {
      ivec codes[4];
      block.lines(first + g, 0x03020100u + line * 0x04040404u, codes);
      for (int v = 0; v < 4; ++v)
        store_ints(to[v / 2].codes[g][line][v % 2], wide<Kind> ? signed_wide(codes[v]) : codes[v]);
    }
    for (int v = 0; v < 4; ++v)
      for (int part = 0; part < layout.parts; ++part) {
        store(&to[v / 2].factors[g][part][v % 2 * lanes], block.factor(first + g, part, v));
        if constexpr (layout.minimum)
          store(&to[v / 2].minima[g][part][v % 2 * lanes], block.minimum(first + g, part, v));
      }
  }
}

/// All inputs: blocks of K outside, blocks of 64 outputs inside, each unpacked once for all rows. Meanwhile the next
/// block of K is prefetched, which lies together.
template <weight_kind Kind>
void accumulate_all_inputs(const linear_op& op, const linear_task& task, std::size_t blocks, std::size_t first_row,
                           std::size_t rows, float* sums) {
  unpacked_block unpacked[2];
  constexpr std::size_t most = register_rows<Kind>, panel_blocks = input_panel_outputs / 64;
  const bool in_panel = task.first_panel / panel_blocks == (task.first_panel + task.panels - 1) / panel_blocks;
  const input_block<Kind> begin(op.weights, task.first_panel, blocks, op.words);
  for (std::size_t k = 0; k < op.words; k += group_block) {
    const std::size_t groups = op.words - k < group_block ? op.words - k : group_block;
    const auto* activations = op.activations + k / group_block * op.activation_block + first_row * activation_row;
    for (std::size_t b = 0; b < task.panels; ++b) {
      const input_block<Kind> block(op.weights, task.first_panel + b, blocks, op.words);
      unpack_inputs(unpacked, block, k, groups, [&](std::size_t g) {
        const std::size_t next = k + group_block + g;
        if (next >= op.words)
          return;
        if (in_panel)
          begin.fetch_share(next, 32 * b / task.panels, 32 * (b + 1) / task.panels, task.panels);
        else
          block.fetch_share(next, 0, 32, 1);
        block.fetch_scales(next);
      });
      for (std::size_t half = 0; half < 2; ++half) {
        float* c = sums + (2 * b + half) * rows * quantised_panel_outputs;
        for (std::size_t tile = 0; tile < rows; tile += op.tile_rows) {
          const std::size_t end = rows - tile < op.tile_rows ? rows : tile + op.tile_rows;
          const std::uint32_t* records = activations + tile * activation_row;
          for (std::size_t row = tile; row < end;) {
            const std::size_t left = end - row, count = left <= most ? left : left < 2 * most ? (left + 1) / 2 : most;
            with_rows<static_cast<int>(most)>(static_cast<int>(count), [&]<int R>() {
              for (int v = 0; v < quantised_vectors; v += register_vectors)
                accumulate_groups<R, register_vectors>(
                  c + row * quantised_panel_outputs + v * lanes, k == 0, records, op.tile_rows * activation_record,
                  unpacked_groups<Kind>(unpacked[half], nullptr, 0), v, groups, false);
            });
            row += count;
            records += count * activation_record;
          }
        }
      }
    }
  }
}

/// Panels of a task are blocks of 64 outputs.
template <weight_kind Kind>
void multiply_by_inputs(const linear_op& op, const linear_task& task, float* sums) {
  constexpr std::size_t unit = by_inputs_unit(layout_of(Kind));
  const std::size_t blocks = (op.outputs + unit - 1) / unit * unit / 64;
  std::size_t first_row = 0, rows = op.rows;
  if (op.kept != nullptr) {
    accumulate_kept_inputs<Kind>(op, task, blocks, sums);
  } else {
    first_row = first_row_of(op, task.first_tile);
    rows = first_row_of(op, task.first_tile + task.tiles) - first_row;
    accumulate_all_inputs<Kind>(op, task, blocks, first_row, rows, sums);
  }
  for (std::size_t p = 0; p < 2 * task.panels; ++p)
    if ((2 * task.first_panel + p) * quantised_panel_outputs < op.outputs)
      store_panel<quantised_panel_outputs>(op, 2 * task.first_panel + p, first_row, rows,
                                           sums + p * rows * quantised_panel_outputs);
}

void linear_by_inputs(const linear_op& op, const linear_task& task, float* sums) {
  switch (op.kind) {
    case weight_kind::q8: return multiply_by_inputs<weight_kind::q8>(op, task, sums);
    case weight_kind::q4: return multiply_by_inputs<weight_kind::q4>(op, task, sums);
    case weight_kind::q4_min: return multiply_by_inputs<weight_kind::q4_min>(op, task, sums);
    case weight_kind::q4_k: return multiply_by_inputs<weight_kind::q4_k>(op, task, sums);
    case weight_kind::q6_k: return multiply_by_inputs<weight_kind::q6_k>(op, task, sums);
    default: return; // never packed so
  }
}

} // namespace
} // namespace troupe::kernels
