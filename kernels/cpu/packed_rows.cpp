#include "kernels/cpu/packed_rows.hpp"

#include "kernels/cpu/panel_packing.hpp"
#include "kernels/formats/codebooks.hpp"
#include "kernels/formats/e4m3.hpp"
#include "kernels/formats/f16.hpp"
#include "kernels/formats/weight_groups.hpp"

#include <bit>
#include <cstring>

namespace troupe::kernels {

namespace {

/// Codes of one column, the reverse of what packing does. `from`: the column's place in the first line.
void read_codes(const char* from, int code_bits, std::uint8_t* codes) {
  constexpr std::size_t line = 4 * quantised_panel_outputs;
  const auto get = [&](std::size_t at) {
    std::uint32_t bits;
    std::memcpy(&bits, from + at * line, 4);
    return bits;
  };
  for (std::size_t i = 0; i < group_inputs / 4; ++i) {
    const auto bits_of = [&](std::size_t at, std::size_t shift, std::uint32_t mask) {
      return get(at) >> shift & mask * 0x01010101u;
    };
    std::uint32_t four = 0;
    switch (code_bits) {
      case 8: four = get(i); break;
      case 1: four = bits_of(0, i, 1); break;
      case 3: four = bits_of(2, i, 1) << 2; [[fallthrough]];
      case 2: four |= bits_of(i / 4, i % 4 * 2, 3); break;
      default: four = bits_of(i % 4, i / 4 * 4, 15);
    }
    if (code_bits == 5)
      four |= bits_of(4, i, 1) << 4;
    if (code_bits == 6)
      four |= bits_of(4 + i / 4, i % 4 * 2, 3) << 4;
    std::memcpy(codes + 4 * i, &four, 4);
  }
}

/// Group `index` of column `column` of a panel of a kind with a codebook.
weight_group coded_group_of(const char* panel, weight_kind kind, std::size_t index, std::size_t column) {
  constexpr std::size_t n = quantised_panel_outputs;
  const auto layout = layout_of(kind);
  const auto shape = shape_of(kind);
  const char* header = panel + layout.bytes(index / super_groups * super_groups);
  const auto* from = reinterpret_cast<const std::uint8_t*>(header) + layout.header_bytes +
    index % super_groups * layout.group_bytes;
  coded_group to;
  std::memcpy(&to.d, header + 2 * column, 2);
  to.scales = from[column];
  from += n;
  const auto* high = from + shape.entries() * n + column;
  for (int e = 0; e < shape.entries(); ++e) {
    to.places[e] = from[e * n + column];
    if (const int bit = e * shape.high_bits; shape.high_bits > 0)
      to.places[e] = static_cast<std::uint16_t>(to.places[e] |
                                                (high[bit / 8 * n] >> bit % 8 & ((1 << shape.high_bits) - 1)) << 8);
  }
  const auto* signs = from + (shape.entries() + shape.high_bytes()) * n + column * 4;
  for (int i = 0; shape.signs && i < 32; ++i)
    to.signs |= static_cast<std::uint32_t>(signs[i % 4] >> i / 4 & 1) << i;
  return decoded(kind, to);
}

/// Group `index` of column `column` of a panel, as `stored_group` gives it, with codes that count from another zero.
weight_group packed_group(const char* panel, const quantised_layout& layout, std::size_t index, std::size_t column) {
  constexpr std::size_t n = quantised_panel_outputs;
  const std::size_t super = index / super_groups * super_groups;
  const char* header = panel + layout.bytes(super);
  const char* from = layout.super ? header + layout.header_bytes + (index - super) * layout.group_bytes
                                  : panel + layout.bytes(index);
  weight_group to;
  to.zero = layout.zero;
  to.scale = layout.e4m3_scales ? scale_type::e4m3_halves : layout.bf16_scales ? scale_type::bf16 : scale_type::f16;
  to.unit = layout.unit;
  read_codes(from + column * 4, layout.code_bits, to.codes);
  if (layout.table != nullptr)
    for (auto& code : to.codes)
      code = layout.table[code];
  const char* scales = layout.super ? header : from + layout.code_bytes;
  if (layout.e4m3_scales)
    to.d = static_cast<std::uint16_t>(static_cast<std::uint8_t>(scales[column]) |
                                      static_cast<std::uint8_t>(scales[n + column]) << 8);
  else
    std::memcpy(&to.d, scales + 2 * column, 2);
  if (layout.minimum)
    std::memcpy(&to.m, scales + 2 * n + 2 * column, 2);
  if (!layout.super) {
    to.minima[0] = to.minima[1] = layout.minimum ? 1 : 0;
    return to;
  }
  if (layout.group_bytes == layout.code_bytes)
    return to;
  const auto* factors = reinterpret_cast<const std::int8_t*>(from + layout.code_bytes);
  for (int half = 0; half < 2; ++half) {
    const int part = layout.parts == 2 ? half : 0;
    to.scales[half] = factors[part * n + column];
    if (layout.minimum)
      to.minima[half] = factors[(layout.parts + part) * n + column];
  }
  return to;
}

void expand_codes(const packed_matrix& m, std::size_t row, std::size_t first, std::size_t count, float* to) {
  const auto* panel = static_cast<const char*>(m.data.get()) + row / panel_outputs * panel_bytes(m);
  const std::size_t output = row % panel_outputs;
  const std::size_t in_word = in_pairs(m.kind) ? 2 : 1, place = in_word == 2 ? place_of_pair(output) : output;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t word = (first + i) / in_word, word_bytes = panel_outputs * in_word;
    float scale;
    std::memcpy(&scale,
                panel + fp8_scales_offset(m.scale_words, word_bytes, word / m.scale_words) + output * sizeof scale,
                sizeof scale);
    const char code = panel[fp8_word_offset(m.scale_words, word_bytes, word) + place * in_word + (first + i) % in_word];
    to[i] = scale * from_e4m3(static_cast<std::uint8_t>(code));
  }
}

template <class Element>
Element element_of(const packed_matrix& m, std::size_t row, std::size_t word) {
  const auto* panel = static_cast<const Element*>(m.data.get()) + row / panel_outputs * m.words * panel_outputs;
  const std::size_t output = row % panel_outputs;
  return panel[word * panel_outputs + (m.kind == weight_kind::bf16_halves ? place_of_half(output) : output)];
}

} // namespace

bool is_kept_exactly(const stored_matrix& m, const packed_matrix& packed) {
  if (packed.gated)
    return false;
  if (has_groups(m.format))
    return packed.quantised(); // in the only kind that the format is packed in
  if (is_fp8(m.format))
    return is_fp8(packed.kind);
  if (packed.kind == weight_kind::bf16_pairs || packed.kind == weight_kind::bf16_halves)
    return m.format == weight_format::bf16;
  return is_float(m.format) && packed.kind == exact_kind(dtype_of(m.format));
}

void expand_packed_row(const packed_matrix& m, std::size_t row, std::size_t first, std::size_t count, float* to) {
  if (m.quantised()) {
    const auto layout = layout_of(m.kind);
    constexpr std::size_t n = quantised_panel_outputs;
    const auto* panel = static_cast<const char*>(m.data.get()) + row / n * layout.bytes(m.words);
    for (std::size_t i = 0; i < count; i += group_inputs)
      dequantise(has_codebook(m.kind) ? coded_group_of(panel, m.kind, (first + i) / group_inputs, row % n)
                                      : packed_group(panel, layout, (first + i) / group_inputs, row % n),
                 to + i);
    return;
  }
  if (is_fp8(m.kind))
    return expand_codes(m, row, first, count, to);
  for (std::size_t i = 0; i < count; ++i)
    switch (m.kind) {
      case weight_kind::f16: to[i] = from_f16(element_of<std::uint16_t>(m, row, first + i)); break;
      case weight_kind::bf16:
      case weight_kind::bf16_halves:
        to[i] = std::bit_cast<float>(std::uint32_t{element_of<std::uint16_t>(m, row, first + i)} << 16);
        break;
      case weight_kind::bf16_pairs: {
        const auto pair = element_of<std::uint32_t>(m, row, (first + i) / 2);
        to[i] = std::bit_cast<float>((first + i) % 2 == 0 ? pair << 16 : pair & 0xffff0000u);
        break;
      }
      default: to[i] = element_of<float>(m, row, first + i);
    }
}

} // namespace troupe::kernels
