#include "kernels/cpu/packed_matrix.hpp"

#include "kernels/cpu/bf16.hpp"
#include "kernels/cpu/memory.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::kernels {

namespace {

constexpr std::size_t chunk = 64; // inputs converted at a time

struct stored_row {
  const char* data = nullptr; // null: padding
  dtype type = dtype::f32;
};

std::size_t element_bytes(weight_kind kind) {
  return kind == weight_kind::f16 || kind == weight_kind::bf16 ? 2 : 4;
}

/// Row `output` of the stack.
stored_row find_row(std::span<const stored_matrix> stacked, std::size_t output) {
  for (const auto& m : stacked) {
    if (output < m.rows)
      return {static_cast<const char*>(m.data) + output * m.cols * size_of(m.type), m.type};
    output -= m.rows;
  }
  return {};
}

/// The stored row that column `column` of a panel holds.
stored_row find_column(const packed_matrix& to, std::span<const stored_matrix> stacked, std::size_t panel,
                       std::size_t column) {
  if (!to.gated)
    return find_row(stacked, panel * panel_outputs + column);
  constexpr std::size_t half = panel_outputs / 2;
  const std::size_t output = panel * half + column % half;
  return output < to.outputs ? find_row(stacked, output + (column < half ? 0 : to.outputs)) : stored_row{};
}

/// Column `column` of a panel: `panel` [words][panel_outputs].
template <class Element>
void place(Element* panel, std::size_t column, std::size_t first_word, const Element* from, std::size_t words) {
  for (std::size_t k = 0; k < words; ++k)
    panel[(first_word + k) * panel_outputs + column] = from[k];
}

/// n inputs from `first` of one row.
void pack_chunk(const packed_matrix& to, const target& kernels, const stored_row& row, std::size_t panel,
                std::size_t column, std::size_t first, std::size_t n) {
  const char* from = row.data + first * size_of(row.type);
  char* base = static_cast<char*>(to.data.get()) + panel * to.words * panel_outputs * element_bytes(to.kind);
  if (to.kind == weight_kind::f16 || to.kind == weight_kind::bf16) {
    std::uint16_t same[chunk];
    std::memcpy(same, from, n * 2);
    return place(reinterpret_cast<std::uint16_t*>(base), column, first, same, n);
  }
  float wide[chunk];
  kernels.widen(exact_kind(row.type), wide, from, n);
  if (to.kind == weight_kind::f32)
    return place(reinterpret_cast<float*>(base), column, first, wide, n);
  std::uint32_t pairs[chunk / 2] = {}; // an odd last input is paired with zero
  for (std::size_t i = 0; i < n; ++i)
    pairs[i / 2] |= std::uint32_t(to_bf16(wide[i])) << (i % 2 * 16);
  place(reinterpret_cast<std::uint32_t*>(base), column, first / 2, pairs, (n + 1) / 2);
}

weight_kind choose_kind(std::span<const stored_matrix> stacked, dtype compute) {
  if (compute == dtype::bf16)
    return weight_kind::bf16_pairs;
  if (compute != dtype::f32)
    throw std::invalid_argument("matrices are packed for f32 or bf16, not for f16");
  const auto type = stacked.front().type;
  const bool same = std::all_of(stacked.begin(), stacked.end(), [&](const auto& m) { return m.type == type; });
  return same ? exact_kind(type) : weight_kind::f32;
}

} // namespace

weight_kind exact_kind(dtype stored) {
  switch (stored) {
    case dtype::f16: return weight_kind::f16;
    case dtype::bf16: return weight_kind::bf16;
    case dtype::f32: break;
  }
  return weight_kind::f32;
}

std::unique_ptr<packed_matrix> pack_matrices(std::span<const stored_matrix> stacked, dtype compute, bool gated,
                                             const target& kernels, thread_pool& pool) {
  if (stacked.empty())
    throw std::invalid_argument("no matrix to pack");
  auto to = std::make_unique<packed_matrix>();
  to->inputs = stacked.front().cols;
  for (const auto& m : stacked) {
    if (m.cols != to->inputs)
      throw std::invalid_argument("matrices that are packed together must have the same number of inputs");
    to->outputs += m.rows;
  }
  if (gated) {
    if (stacked.size() != 2 || stacked[0].rows != stacked[1].rows)
      throw std::invalid_argument("gate and up must have the same number of outputs");
    to->outputs = stacked[0].rows;
  }
  to->kind = choose_kind(stacked, compute);
  to->compute = compute;
  to->gated = gated;
  to->words = compute == dtype::bf16 ? (to->inputs + 1) / 2 : to->inputs;
  const std::size_t outputs_per_panel = gated ? panel_outputs / 2 : panel_outputs;
  to->panels = (to->outputs + outputs_per_panel - 1) / outputs_per_panel;
  to->bytes = to->panels * to->words * panel_outputs * element_bytes(to->kind);
  to->data = allocate_zeroed(to->bytes);

  pool.parallel_for(to->panels, [&](std::size_t panel, int) {
    stored_row rows[panel_outputs];
    for (std::size_t column = 0; column < panel_outputs; ++column)
      rows[column] = find_column(*to, stacked, panel, column);
    for (std::size_t k = 0; k < to->inputs; k += chunk)
      for (std::size_t column = 0; column < panel_outputs; ++column)
        if (rows[column].data != nullptr)
          pack_chunk(*to, kernels, rows[column], panel, column, k, std::min(chunk, to->inputs - k));
  });
  return to;
}

} // namespace troupe::kernels
