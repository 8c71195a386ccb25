#include "kernels/cpu/packed_matrix.hpp"

#include "kernels/cpu/memory.hpp"
#include "kernels/formats/bf16.hpp"
#include "kernels/formats/e4m3.hpp"
#include "kernels/formats/f16.hpp"
#include "kernels/formats/pruned_weights.hpp"
#include "kernels/formats/quantise_groups.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

namespace troupe::kernels {

namespace {

constexpr std::size_t chunk = 64; // inputs converted at a time

struct stored_row {
  const char* data = nullptr; // null: padding
  weight_format format = weight_format::f32;
  std::optional<float> fp8 = {}; // floats are rounded to E4M3 times this scale
};

std::size_t element_bytes(weight_kind kind) { return kind == weight_kind::f16 || kind == weight_kind::bf16 ? 2 : 4; }

/// Bytes of a value of a pruned matrix.
std::size_t value_bytes(weight_kind kind) { return kind == weight_kind::f32 ? 4 : 2; }

constexpr std::size_t strip_inputs = 4 * strip_fours;

std::size_t strip_bytes(weight_kind kind) {
  return strip_place_bytes + 2 * strip_fours * panel_outputs * value_bytes(kind);
}

std::size_t panel_bytes(const packed_matrix& m) {
  if (m.pruned)
    return (m.inputs + strip_inputs - 1) / strip_inputs * strip_bytes(m.kind);
  return m.quantised() ? layout_of(m.kind).bytes(m.words) : m.words * panel_outputs * element_bytes(m.kind);
}

/// Whether no number has an exponent of all ones.
template <class Bits, Bits Exponent>
bool all_finite(const char* from, std::size_t bytes) {
  std::uint32_t found = 0;
  for (std::size_t i = 0; i < bytes; i += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, from + i, sizeof bits);
    found |= (bits & Exponent) == Exponent;
  }
  return found == 0;
}

bool all_finite(weight_kind kind, const char* from, std::size_t bytes) {
  switch (kind) {
    case weight_kind::f32: return all_finite<std::uint32_t, 0x7f800000>(from, bytes);
    case weight_kind::f16: return all_finite<std::uint16_t, 0x7c00>(from, bytes);
    case weight_kind::bf16:
    case weight_kind::bf16_pairs: return all_finite<std::uint16_t, 0x7f80>(from, bytes);
    default: return false;
  }
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
  if (row.fp8)
    for (std::size_t i = 0; i < n; ++i)
      to[i] = *row.fp8 * from_e4m3(to_fp8(to[i], *row.fp8));
}

/// The scale of a row of floats that is quantised to fp8.
float row_scale(const target& kernels, const stored_row& row, std::size_t inputs) {
  std::vector<float> wide(inputs);
  widen(kernels, row, wide.data(), 0, inputs);
  return fp8_scale(wide.data(), inputs);
}

/// Packs n inputs of one row from `first`.
void pack_chunk(const packed_matrix& to, const target& kernels, const stored_row& row, char* panel, std::size_t column,
                std::size_t first, std::size_t n) {
  const bool as_stored = is_float(row.format) && !row.fp8 && exact_kind(dtype_of(row.format)) == to.kind;
  if (as_stored && element_bytes(to.kind) == 2) {
    std::uint16_t same[chunk];
    std::memcpy(same, row.data + 2 * first, n * 2);
    return place(reinterpret_cast<std::uint16_t*>(panel), column, first, same, n);
  }
  if (to.kind == weight_kind::bf16_pairs && row.format == weight_format::bf16 && !row.fp8) {
    std::uint32_t same[chunk / 2] = {}; // an odd last input is paired with zero
    std::memcpy(same, row.data + 2 * first, n * 2);
    return place(reinterpret_cast<std::uint32_t*>(panel), column, first / 2, same, (n + 1) / 2);
  }
  float wide[chunk];
  widen(kernels, row, wide, first, n);
  if (to.kind == weight_kind::f32)
    return place(reinterpret_cast<float*>(panel), column, first, wide, n);
  if (to.kind == weight_kind::bf16) {
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
      // Of two inputs of one word, the second is added first: it is the upper half already.
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

/// For each value of a byte, the first place of a table that holds it.
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
  std::memcpy(scales + 2 * column, &group.d, 2);
  if (layout.minimum)
    std::memcpy(scales + 2 * n + 2 * column, &group.m, 2);
  if (!layout.super)
    return;
  char* factors = to + layout.code_bytes;
  for (int part = 0; part < layout.parts; ++part)
    factors[part * n + column] = group.scales[part];
  for (int part = 0; layout.minimum && part < layout.parts; ++part)
    factors[(layout.parts + part) * n + column] = group.minima[part];
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

std::size_t words_of(weight_kind kind, std::size_t inputs) {
  const std::size_t in_word = is_grouped(kind) ? group_inputs : kind == weight_kind::bf16_pairs ? 2 : 1;
  return (inputs + in_word - 1) / in_word;
}

bool in_f16(const stored_matrix& m) { return whole_format(m.format) == weight_format::f16; }

/// f16 weights are rounded to bf16, which loses bits, only where that is asked for, or if they are rounded to fp8
/// before.
weight_kind float_kind(std::span<const stored_matrix> stacked, dtype compute, quantization how, const target& kernels) {
  const bool rounded = how == quantization::fp8 || how == quantization::bf16;
  if (rounded && compute == dtype::f32)
    return how == quantization::bf16 ? weight_kind::bf16 : weight_kind::f32;
  if (compute == dtype::bf16 && (rounded || std::none_of(stacked.begin(), stacked.end(), in_f16)))
    return kernels.pairs ? weight_kind::bf16_pairs : weight_kind::bf16;
  const auto format = whole_format(stacked.front().format);
  const bool same = std::all_of(stacked.begin(), stacked.end(),
                                [&](const auto& m) { return whole_format(m.format) == format; });
  return same && is_float(format) ? exact_kind(dtype_of(format)) : weight_kind::f32;
}

/// Cuts a stack into neighbours that are packed as one.
std::vector<std::span<const stored_matrix>> neighbours_of_a_kind(std::span<const stored_matrix> stacked,
                                                                 quantization how, bool gated) {
  if (stacked.empty())
    throw std::invalid_argument("no matrix to pack");
  if (gated)
    return {stacked};
  const auto alike = [&](const stored_matrix& a, const stored_matrix& b) {
    const auto kind = quantised_kind(a, how);
    return kind == quantised_kind(b, how) && is_pruned(a.format) == is_pruned(b.format) &&
      (kind || how == quantization::bf16 || in_f16(a) == in_f16(b));
  };
  std::vector<std::span<const stored_matrix>> parts;
  for (std::size_t first = 0, i = 0; i < stacked.size(); ++i) {
    if (stacked[i].cols != stacked[0].cols)
      throw std::invalid_argument("matrices that are packed together must have the same inputs");
    if (i + 1 < stacked.size() && alike(stacked[i + 1], stacked[first]))
      continue;
    parts.push_back(stacked.subspan(first, i + 1 - first));
    first = i + 1;
  }
  return parts;
}

/// Calls `make` for a packed_matrix of each part.
template <class Make>
std::unique_ptr<matrix> make_stack(std::span<const stored_matrix> stacked, quantization how, bool gated,
                                   const Make& make) {
  const auto parts = neighbours_of_a_kind(stacked, how, gated);
  if (parts.size() == 1)
    return make(parts.front());
  auto stack = std::make_unique<matrix_stack>();
  stack->inputs = stacked.front().cols;
  for (const auto& same : parts) {
    const auto& part = stack->parts.emplace_back(make(same));
    stack->outputs += part->outputs;
    stack->bytes += part->bytes;
  }
  return stack;
}

} // namespace

bool packed_matrix::finite(thread_pool& pool) const {
  auto known = finiteness_.load(std::memory_order_relaxed);
  if (known == finiteness::unknown) {
    std::atomic<bool> all = true;
    pool.parallel_for(panels, [&](std::size_t panel, int) {
      const auto* from = static_cast<const char*>(data.get()) + panel * panel_bytes(*this);
      if (!all_finite(kind, from, panel_bytes(*this)))
        all = false;
    });
    known = all ? finiteness::finite : finiteness::not_finite;
    finiteness_.store(known, std::memory_order_relaxed);
  }
  return known == finiteness::finite;
}

std::optional<weight_kind> quantised_kind(const stored_matrix& m, quantization how) {
  if (const auto kind = traits_of(m.format).on_cpu; is_grouped(kind))
    return kind;
  if (is_pruned(m.format)) // stays as it is
    return {};
  switch (how) {
    case quantization::int8: return weight_kind::q8;
    case quantization::int4: return weight_kind::q4_min;
    case quantization::fp8: // rounded to it, and kept as floats
    case quantization::bf16:
    case quantization::none: break;
  }
  return {};
}

std::unique_ptr<packed_matrix> shape_matrices(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                                              bool gated, const target& kernels) {
  if (stacked.empty())
    throw std::invalid_argument("no matrix to pack");
  if (compute == dtype::f16)
    throw std::invalid_argument("matrices are packed for f32 or bf16, not for f16");
  auto to = std::make_unique<packed_matrix>();
  to->inputs = stacked.front().cols;
  for (const auto& m : stacked) {
    if (m.cols != to->inputs)
      throw std::invalid_argument("matrices that are packed together must have the same number of inputs");
    if (m.cols % block_inputs(m.format) != 0)
      throw std::invalid_argument(std::string("a matrix in ") + to_string(m.format) + " must have a multiple of " +
                                  std::to_string(block_inputs(m.format)) + " inputs");
    to->outputs += m.rows;
  }
  if (gated) {
    if (stacked.size() != 2 || stacked[0].rows != stacked[1].rows)
      throw std::invalid_argument("gate and up must have the same number of outputs");
    to->outputs = stacked[0].rows;
  }
  const auto kind = quantised_kind(stacked.front(), how);
  const bool same = std::all_of(stacked.begin(), stacked.end(),
                                [&](const auto& m) { return quantised_kind(m, how) == kind; });
  to->pruned = std::all_of(stacked.begin(), stacked.end(), [](const auto& m) { return is_pruned(m.format); });
  to->kind = same && kind ? *kind : float_kind(stacked, compute, to->pruned ? quantization::none : how, kernels);
#if !defined(__x86_64__) // elsewhere pairs have another order, which pruned ones would not keep
  if (to->pruned && to->kind == weight_kind::bf16_pairs)
    to->kind = weight_kind::bf16;
#endif
  to->compute = compute;
  to->gated = gated;
  to->words = words_of(to->kind, to->inputs);
  const std::size_t columns = to->panel_columns();
  const std::size_t outputs_per_panel = gated ? columns / 2 : columns;
  to->panels = (to->outputs + outputs_per_panel - 1) / outputs_per_panel;
  to->bytes = to->panels * panel_bytes(*to);
  return to;
}

std::unique_ptr<packed_matrix> pack_matrices(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                                             bool gated, const target& kernels, thread_pool& pool,
                                             weight_memory& memory) {
  auto to = shape_matrices(stacked, compute, how, gated, kernels);
  to->data = memory.allocate(to->bytes);
  const std::size_t columns = to->panel_columns();
  const auto places = to->quantised() ? inverse_of(layout_of(to->kind)) : inverse_table();
  pool.parallel_for(to->panels, [&](std::size_t panel, int) {
    char* base = static_cast<char*>(to->data.get()) + panel * panel_bytes(*to);
    stored_row rows[panel_outputs];
    for (std::size_t column = 0; column < columns; ++column) {
      auto& row = rows[column] = find_column(*to, stacked, panel, column);
      if (how == quantization::fp8 && row.data != nullptr && is_float(row.format))
        row.fp8 = row_scale(kernels, row, to->inputs);
    }
    if (to->pruned) {
      for (std::size_t column = 0; column < columns; ++column)
        if (rows[column].data != nullptr)
          pack_pairs(*to, rows[column], base, column);
      return;
    }
    if (to->quantised()) {
      const auto is_q8_0 = [](const stored_row& row) {
        return row.data == nullptr || row.format == weight_format::q8_0;
      };
      if (to->kind == weight_kind::q8 && std::all_of(rows, rows + columns, is_q8_0))
        return pack_q8_0(base, {rows, columns}, to->words);
      const auto layout = layout_of(to->kind);
      weight_group groups[quantised_panel_outputs];
      for (std::size_t index = 0; index < to->words; ++index) {
        make_groups(kernels, {rows, columns}, to->kind, index, to->inputs, groups);
        for (std::size_t column = 0; column < columns; ++column)
          if (rows[column].data != nullptr)
            place(base, layout, places, index, column, groups[column]);
      }
      return;
    }
    for (std::size_t k = 0; k < to->inputs; k += chunk)
      for (std::size_t column = 0; column < columns; ++column)
        if (rows[column].data != nullptr)
          pack_chunk(*to, kernels, rows[column], base, column, k, std::min(chunk, to->inputs - k));
  });
  return to;
}

std::unique_ptr<matrix> pack_stack(std::span<const stored_matrix> stacked, dtype compute, quantization how, bool gated,
                                   const target& kernels, thread_pool& pool, weight_memory& memory) {
  return make_stack(stacked, how, gated,
                    [&](const auto& same) { return pack_matrices(same, compute, how, gated, kernels, pool, memory); });
}

std::unique_ptr<matrix> shape_stack(std::span<const stored_matrix> stacked, dtype compute, quantization how, bool gated,
                                    const target& kernels) {
  return make_stack(stacked, how, gated,
                    [&](const auto& same) { return shape_matrices(same, compute, how, gated, kernels); });
}

std::vector<const packed_matrix*> parts_of(const matrix& packed) {
  if (const auto* one = dynamic_cast<const packed_matrix*>(&packed))
    return {one};
  const auto* stack = dynamic_cast<const matrix_stack*>(&packed);
  if (stack == nullptr)
    throw std::invalid_argument("the matrix is not packed by the CPU backend");
  std::vector<const packed_matrix*> parts;
  for (const auto& part : stack->parts)
    parts.push_back(part.get());
  return parts;
}

std::vector<std::span<const std::byte>> bytes_of_stack(const matrix& packed) {
  std::vector<std::span<const std::byte>> bytes;
  for (const auto* part : parts_of(packed))
    bytes.emplace_back(static_cast<const std::byte*>(part->data.get()), part->bytes);
  return bytes;
}

std::unique_ptr<matrix> restore_stack(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                                      bool gated, const target& kernels, const buffer& bytes) {
  std::size_t done = 0;
  return make_stack(stacked, how, gated, [&](const auto& same) {
    auto part = shape_matrices(same, compute, how, gated, kernels);
    part->data = buffer(bytes, static_cast<std::byte*>(bytes.get()) + done);
    done += part->bytes;
    return part;
  });
}

} // namespace troupe::kernels
