#include "kernels/cpu/panel_packing.hpp"

#include "kernels/cpu/memory.hpp"
#include "kernels/formats/bf16.hpp"
#include "kernels/formats/codebooks.hpp"
#include "kernels/formats/e4m3.hpp"
#include "kernels/formats/f16.hpp"
#include "kernels/formats/pruned_weights.hpp"
#include "kernels/formats/quantise_groups.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <vector>

namespace troupe::kernels {

namespace {

constexpr std::size_t chunk = 64; // inputs converted at a time

struct stored_row {
  const char* data = nullptr; // null: padding
  weight_format format = weight_format::f32;
};

/// Bytes of an output's part of a word.
std::size_t element_bytes(weight_kind kind) {
  switch (kind) {
    case weight_kind::fp8: return 1;
    case weight_kind::f16:
    case weight_kind::bf16:
    case weight_kind::bf16_halves:
    case weight_kind::fp8_pairs: return 2;
    default: return 4;
  }
}

/// Bytes of a value of a pruned matrix.
std::size_t value_bytes(weight_kind kind) { return kind == weight_kind::f32 ? 4 : 2; }

constexpr std::size_t strip_inputs = 4 * strip_fours;

std::size_t strip_bytes(weight_kind kind) {
  return strip_place_bytes + 2 * strip_fours * panel_outputs * value_bytes(kind);
}

/// Row `output` of the stack.
stored_row find_row(std::span<const stored_matrix> stacked, std::size_t output) {
  for (const auto& m : stacked) {
    if (output < m.rows)
      return {static_cast<const char*>(m.row(output)), m.format};
    output -= m.rows;
  }
  return {};
}

/// The stored row in column `column` of a panel.
stored_row find_column(const packed_matrix& to, std::span<const stored_matrix> stacked, std::size_t panel,
                       std::size_t column) {
  if (!to.gated)
    return find_row(stacked, panel * to.panel_columns() + column);
  const std::size_t half = to.panel_columns() / 2;
  const std::size_t output = panel * half + column % half;
  return output < to.outputs ? find_row(stacked, output + (column < half ? 0 : to.outputs)) : stored_row{};
}

/// Writes column `column` of `panel`, [words][panel_outputs].
template <class Element>
void place(Element* panel, std::size_t column, std::size_t first_word, const Element* from, std::size_t words) {
  for (std::size_t k = 0; k < words; ++k)
    panel[(first_word + k) * panel_outputs + column] = from[k];
}

/// Widens n inputs of one row to f32, from `first`, a multiple of the group.
void widen(const target& kernels, const stored_row& row, float* to, std::size_t first, std::size_t n) {
  if (!is_float(row.format))
    return expand(row.format, row.data, first, n, to);
  kernels.widen(exact_kind(dtype_of(row.format)), to, row.data + row_bytes(row.format, first), n);
}

/// The scale of n inputs of a row of fp8 from `first`, or of a row that is quantised to it. The kernels take the codes
/// of NaN for numbers, so NaN is in the scale: where one weight is NaN, so is the whole sum.
float scale_of(const target& kernels, const stored_row& row, std::size_t inputs, std::size_t first, std::size_t n) {
  if (is_fp8(row.format)) {
    const auto* codes = row.data + fp8_offset(row.format, first);
    const bool has_nan = std::any_of(codes, codes + n, [](char code) { return (code & 0x7f) == 0x7f; });
    float scale = std::numeric_limits<float>::quiet_NaN();
    if (!has_nan)
      std::memcpy(&scale, row.data + fp8_scale_offset(row.format, first), sizeof scale);
    return scale;
  }
  std::vector<float> wide(inputs);
  widen(kernels, row, wide.data(), 0, inputs);
  return fp8_scale(wide.data(), inputs);
}

/// Packs n codes of one row in fp8 from `first`, or quantises them. `words`: where the word of `first` is.
void pack_codes(const packed_matrix& to, const target& kernels, const stored_row& row, float scale, char* words,
                std::size_t column, std::size_t first, std::size_t n) {
  std::uint8_t codes[chunk] = {}; // an odd last input is paired with zero
  if (is_fp8(row.format)) {
    std::memcpy(codes, row.data + fp8_offset(row.format, first), n);
  } else {
    float wide[chunk];
    widen(kernels, row, wide, first, n);
    std::transform(wide, wide + n, codes, [&](float x) { return to_fp8(x, scale); });
  }
  if (to.kind == weight_kind::fp8)
    return place(reinterpret_cast<std::uint8_t*>(words), column, 0, codes, n);
  std::uint16_t pairs[chunk / 2];
  std::memcpy(pairs, codes, sizeof pairs);
  place(reinterpret_cast<std::uint16_t*>(words), place_of_pair(column), 0, pairs, (n + 1) / 2);
}

/// A panel in fp8: blocks of scales and of the words that share them.
void pack_codes(const packed_matrix& to, const target& kernels, std::span<const stored_row> rows, char* panel) {
  const std::size_t in_word = in_pairs(to.kind) ? 2 : 1, word_bytes = panel_outputs * in_word;
  const std::size_t shared = to.scale_words * in_word;
  for (std::size_t first = 0; first < to.inputs; first += shared) {
    const auto end = std::min(to.inputs, first + shared);
    float scales[panel_outputs] = {};
    for (std::size_t column = 0; column < rows.size(); ++column)
      if (rows[column].data != nullptr)
        scales[column] = scale_of(kernels, rows[column], to.inputs, first, end - first);
    std::memcpy(panel + fp8_scales_offset(to.scale_words, word_bytes, first / shared), scales, sizeof scales);
    for (std::size_t k = first; k < end; k += chunk)
      for (std::size_t column = 0; column < rows.size(); ++column)
        if (rows[column].data != nullptr)
          pack_codes(to, kernels, rows[column], scales[column],
                     panel + fp8_word_offset(to.scale_words, word_bytes, k / in_word), column, k,
                     std::min(chunk, end - k));
  }
}

/// Packs n inputs of one row from `first`.
void pack_chunk(const packed_matrix& to, const target& kernels, const stored_row& row, char* panel, std::size_t column,
                std::size_t first, std::size_t n) {
  const bool halves = to.kind == weight_kind::bf16_halves, narrow = halves || to.kind == weight_kind::bf16;
  if (halves)
    column = place_of_half(column);
  const bool as_stored = is_float(row.format) &&
    exact_kind(dtype_of(row.format)) == (halves ? weight_kind::bf16 : to.kind);
  if (as_stored && element_bytes(to.kind) == 2) {
    std::uint16_t same[chunk];
    std::memcpy(same, row.data + 2 * first, n * 2);
    return place(reinterpret_cast<std::uint16_t*>(panel), column, first, same, n);
  }
  if (to.kind == weight_kind::bf16_pairs && row.format == weight_format::bf16) {
    std::uint32_t same[chunk / 2] = {}; // an odd last input is paired with zero
    std::memcpy(same, row.data + 2 * first, n * 2);
    return place(reinterpret_cast<std::uint32_t*>(panel), column, first / 2, same, (n + 1) / 2);
  }
  float wide[chunk];
  widen(kernels, row, wide, first, n);
  if (to.kind == weight_kind::f32)
    return place(reinterpret_cast<float*>(panel), column, first, wide, n);
  if (narrow) {
    std::uint16_t rounded[chunk];
    std::transform(wide, wide + n, rounded, to_bf16);
    return place(reinterpret_cast<std::uint16_t*>(panel), column, first, rounded, n);
  }
  std::uint32_t pairs[chunk / 2] = {}; // an odd last input is paired with zero
  for (std::size_t i = 0; i < n; ++i)
    pairs[i / 2] |= std::uint32_t(to_bf16(wide[i])) << (i % 2 * 16);
  place(reinterpret_cast<std::uint32_t*>(panel), column, first / 2, pairs, (n + 1) / 2);
}

/// A value of a pruned matrix; rounds f32 to bf16.
void put_value(weight_kind kind, char* to, float value) {
  if (kind == weight_kind::f32) {
    std::memcpy(to, &value, sizeof value);
    return;
  }
  const std::uint16_t bits = kind == weight_kind::f16 ? to_f16(value) : to_bf16(value);
  std::memcpy(to, &bits, sizeof bits);
}

/// Packs the stored pairs of one row.
void pack_pairs(const packed_matrix& to, const stored_row& row, char* panel, std::size_t column) {
  const auto size = value_bytes(to.kind);
  const bool words = to.kind == weight_kind::bf16_pairs;
  for (std::size_t four = 0; four < to.inputs / 4; ++four) {
    auto pair = pruned_pair(row.format, row.data, four);
    if (words && pair.first_place / 2 == pair.second_place / 2) {
      // Both inputs are in one word. The second one is added first: it is the upper half already.
    } else if (words) {
      std::swap(pair.first, pair.second);
      std::swap(pair.first_place, pair.second_place);
    }
    char* strip = panel + four / strip_fours * strip_bytes(to.kind);
    const std::size_t index = four % strip_fours;
    std::uint32_t places;
    std::memcpy(&places, strip + column * sizeof places, sizeof places);
    places |= static_cast<std::uint32_t>(pair.first_place | pair.second_place << 2) << 4 * index;
    std::memcpy(strip + column * sizeof places, &places, sizeof places);
    char* values = strip + strip_place_bytes + index * 2 * panel_outputs * size;
    put_value(to.kind, values + (words ? 2 * column : column) * size, pair.first);
    put_value(to.kind, values + (words ? 2 * column + 1 : panel_outputs + column) * size, pair.second);
  }
}

/// Group `index` of all rows of a panel, without padding rows. In the last group of a matrix of floats, missing inputs
/// are zero.
void make_groups(const target& kernels, std::span<const stored_row> rows, weight_kind kind, std::size_t index,
                 std::size_t inputs, weight_group* to) {
  const std::size_t first = index * group_inputs;
  const auto of_floats = [](const stored_row& row) { return row.data != nullptr && !has_groups(row.format); };
  const bool floats = std::any_of(rows.begin(), rows.end(), of_floats);
  float wide[quantised_panel_outputs][group_inputs];
  if (floats)
    std::memset(wide, 0, sizeof wide);
  for (std::size_t column = 0; floats && column < rows.size(); ++column)
    if (of_floats(rows[column]))
      widen(kernels, rows[column], wide[column], first, std::min(group_inputs, inputs - first));
  if (floats && kind != weight_kind::q8)
    quantise_int4(wide[0], rows.size(), to); // all columns; those in blocks are replaced below
  for (std::size_t column = 0; column < rows.size(); ++column) {
    const auto& row = rows[column];
    if (row.data != nullptr && has_groups(row.format))
      to[column] = stored_group(row.format, row.data, index);
    else if (row.data != nullptr && kind == weight_kind::q8)
      to[column] = quantise_int8(wide[column]);
  }
}

/// The first place of each byte value in a table.
using inverse_table = std::array<std::uint8_t, 256>;

inverse_table inverse_of(const quantised_layout& layout) {
  inverse_table places{};
  for (int i = 16; layout.table != nullptr && i-- > 0;)
    places[layout.table[i]] = static_cast<std::uint8_t>(i);
  return places;
}

/// Writes the codes of one column, four of a line at a time. `to`: the column's place in the first line.
void place_codes(char* to, int code_bits, const std::uint8_t* codes) {
  constexpr std::size_t line = 4 * quantised_panel_outputs;
  std::uint32_t four[group_inputs / 4];
  std::memcpy(four, codes, sizeof four);
  // The bits of `mask` of the fours from `first` on, `count` in all, each `step` bits further up in the line's bytes.
  const auto joined = [&](std::size_t first, std::size_t count, int from, std::uint32_t mask, std::size_t step) {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < count; ++i)
      bits |= (four[first + i] >> from & mask * 0x01010101u) << i * step;
    return bits;
  };
  const auto put = [&](std::size_t at, std::uint32_t bits) { std::memcpy(to + at * line, &bits, 4); };
  switch (code_bits) {
    case 8:
      for (std::size_t i = 0; i < 8; ++i)
        put(i, four[i]);
      return;
    case 1: return put(0, joined(0, 8, 0, 1, 1));
    case 3: put(2, joined(0, 8, 2, 1, 1)); [[fallthrough]];
    case 2: // lines of bit pairs, then one of third bits
      put(0, joined(0, 4, 0, 3, 2));
      put(1, joined(4, 4, 0, 3, 2));
      return;
    default:
      for (std::size_t i = 0; i < 4; ++i)
        put(i, (four[i] & 0x0f0f0f0fu) | (four[i + 4] & 0x0f0f0f0fu) << 4);
  }
  if (code_bits == 5)
    put(4, joined(0, 8, 4, 1, 1));
  if (code_bits == 6) {
    put(4, joined(0, 4, 4, 3, 2));
    put(5, joined(4, 4, 4, 3, 2));
  }
}

/// Writes column `column` of group `index` of a panel.
void place(char* panel, const quantised_layout& layout, const inverse_table& places, std::size_t index,
           std::size_t column, const weight_group& group) {
  constexpr std::size_t n = quantised_panel_outputs;
  const std::size_t super = index / super_groups * super_groups;
  char* header = panel + layout.bytes(super);
  char* to = header + layout.header_bytes + (index - super) * layout.group_bytes;
  if (!layout.super)
    to = panel + layout.bytes(index);
  std::uint8_t codes[group_inputs];
  if (layout.table != nullptr)
    for (std::size_t i = 0; i < group_inputs; ++i)
      codes[i] = places[group.codes[i]];
  else
    for (std::size_t i = 0; i < group_inputs; ++i)
      codes[i] = static_cast<std::uint8_t>(group.codes[i] + layout.zero - group.zero);
  place_codes(to + column * 4, layout.code_bits, codes);
  char* scales = layout.super ? header : to + layout.code_bytes;
  if (layout.e4m3_scales) {
    scales[column] = static_cast<char>(group.d);
    scales[n + column] = static_cast<char>(group.d >> 8);
    return;
  }
  std::memcpy(scales + 2 * column, &group.d, 2);
  if (layout.minimum)
    std::memcpy(scales + 2 * n + 2 * column, &group.m, 2);
  if (!layout.super || layout.group_bytes == layout.code_bytes)
    return;
  char* factors = to + layout.code_bytes;
  for (int part = 0; part < layout.parts; ++part)
    factors[part * n + column] = group.scales[part];
  for (int part = 0; layout.minimum && part < layout.parts; ++part)
    factors[(layout.parts + part) * n + column] = group.minima[part];
}

/// Writes column `column` of group `index` of a panel of a kind with a codebook.
void place(char* panel, weight_kind kind, std::size_t index, std::size_t column, const coded_group& group) {
  constexpr std::size_t n = quantised_panel_outputs;
  const auto layout = layout_of(kind);
  const auto shape = shape_of(kind);
  char* header = panel + layout.bytes(index / super_groups * super_groups);
  char* to = header + layout.header_bytes + index % super_groups * layout.group_bytes;
  std::memcpy(header + 2 * column, &group.d, 2);
  to[column] = static_cast<char>(group.scales);
  to += n;
  for (int e = 0; e < shape.entries(); ++e) {
    to[e * n + column] = static_cast<char>(group.places[e]);
    if (shape.high_bits > 0) {
      char& high = to[(shape.entries() + e * shape.high_bits / 8) * n + column];
      high = static_cast<char>(high | (group.places[e] >> 8) << e * shape.high_bits % 8);
    }
  }
  char* signs = to + (shape.entries() + shape.high_bytes()) * n + column * 4;
  for (int i = 0; shape.signs && i < 32; ++i)
    signs[i % 4] = static_cast<char>(signs[i % 4] | (group.signs >> i & 1) << i / 4);
}

/// A panel of rows in formats with a codebook, whose codes only change places.
void pack_codes(char* panel, weight_kind kind, std::span<const stored_row> rows, std::size_t groups) {
  for (std::size_t index = 0; index < groups; ++index)
    for (std::size_t column = 0; column < rows.size(); ++column)
      if (const auto& row = rows[column]; row.data != nullptr) {
        const auto* block = reinterpret_cast<const std::uint8_t*>(row.data) +
          index / super_groups * block_bytes(row.format);
        place(panel, kind, index, column, stored_codes(row.format, block, static_cast<int>(index % super_groups)));
      }
}

/// A panel of rows that are stored in Q8_0: their codes only change places. Some groups at a time, which stay in L1.
void pack_q8_0(char* panel, std::span<const stored_row> rows, std::size_t groups) {
  constexpr std::size_t line = 4 * quantised_panel_outputs, at_a_time = 8, stored = block_bytes(weight_format::q8_0);
  const auto layout = layout_of(weight_kind::q8);
  for (std::size_t first = 0; first < groups; first += at_a_time)
    for (std::size_t column = 0; column < rows.size(); ++column) {
      if (rows[column].data == nullptr)
        continue;
      for (std::size_t index = first; index < std::min(groups, first + at_a_time); ++index) {
        const char* block = rows[column].data + index * stored;
        char* to = panel + layout.bytes(index);
        for (std::size_t i = 0; i < group_inputs / 4; ++i) {
          std::uint32_t four;
          std::memcpy(&four, block + 2 + 4 * i, 4);
          four ^= 0x80808080u;
          std::memcpy(to + i * line + column * 4, &four, 4);
        }
        std::memcpy(to + layout.code_bytes + 2 * column, block, 2);
      }
    }
}

} // namespace

std::size_t panel_bytes(const packed_matrix& m) {
  if (m.pruned)
    return (m.inputs + strip_inputs - 1) / strip_inputs * strip_bytes(m.kind);
  if (m.quantised())
    return layout_of(m.kind).bytes(m.words);
  const auto word_bytes = panel_outputs * element_bytes(m.kind);
  return is_fp8(m.kind) ? fp8_panel_bytes(m.scale_words, word_bytes, m.words) : m.words * word_bytes;
}

void fill_panels(packed_matrix& to, std::span<const stored_matrix> stacked, const target& kernels, thread_pool& pool) {
  const std::size_t columns = to.panel_columns();
  const auto places = to.quantised() ? inverse_of(layout_of(to.kind)) : inverse_table();
  pool.parallel_for(to.panels, [&](std::size_t panel, int) {
    char* base = static_cast<char*>(to.data.get()) + panel * panel_bytes(to);
    stored_row rows[panel_outputs];
    for (std::size_t column = 0; column < columns; ++column)
      rows[column] = find_column(to, stacked, panel, column);
    if (is_fp8(to.kind))
      return pack_codes(to, kernels, {rows, columns}, base);
    if (to.pruned) {
      for (std::size_t column = 0; column < columns; ++column)
        if (rows[column].data != nullptr)
          pack_pairs(to, rows[column], base, column);
      return;
    }
    if (to.quantised()) {
      const auto is_q8_0 = [](const stored_row& row) {
        return row.data == nullptr || row.format == weight_format::q8_0;
      };
      if (to.kind == weight_kind::q8 && std::all_of(rows, rows + columns, is_q8_0))
        return pack_q8_0(base, {rows, columns}, to.words);
      if (has_codebook(to.kind))
        return pack_codes(base, to.kind, {rows, columns}, to.words);
      const auto layout = layout_of(to.kind);
      weight_group groups[quantised_panel_outputs];
      for (std::size_t index = 0; index < to.words; ++index) {
        make_groups(kernels, {rows, columns}, to.kind, index, to.inputs, groups);
        for (std::size_t column = 0; column < columns; ++column)
          if (rows[column].data != nullptr)
            place(base, layout, places, index, column, groups[column]);
      }
      return;
    }
    for (std::size_t k = 0; k < to.inputs; k += chunk)
      for (std::size_t column = 0; column < columns; ++column)
        if (rows[column].data != nullptr)
          pack_chunk(to, kernels, rows[column], base, column, k, std::min(chunk, to.inputs - k));
  });
}

} // namespace troupe::kernels
