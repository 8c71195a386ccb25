// Finishes a linear layer's sums: adds bias or residual, applies the activation or the gate, stores. Only for the
// target units.
#pragma once

#include "kernels/cpu/isa/activations.hpp"
#include "kernels/cpu/isa/low_rank_kernel.hpp"
#include "kernels/cpu/isa/tile.hpp"
#include "kernels/cpu/target.hpp"

namespace troupe::kernels {
namespace {

/// 16 sums. -0 becomes 0: whether a sum that underflows keeps its sign depends on the zeros that are added, which
/// skipping them must not show.
inline vec sum_of(const float* c) { return load(c) + zero(); }

template <activation_type Act, class Out>
inline void add_bias_and_store(const linear_op& op, Out* out, const float* c, std::size_t output, const float* factor,
                               const row_addend* addend) {
  const std::size_t n = op.outputs - output;
  vec x = sum_of(c);
  if (op.bias != nullptr)
    x = x + load_some(op.bias + output, n);
  if (addend != nullptr)
    x = x + low_rank_addend(op.bf16_addends, *addend, op.first_addend + output);
  x = activated<Act>(op.act, x);
  if constexpr (sizeof(Out) == sizeof(float))
    if (op.add)
      x = load_some(out + output, n) + (factor != nullptr ? x * broadcast(*factor) : x);
  store_some(out + output, x, n);
}

template <activation_type Act, class Out>
inline void gate_and_store(const linear_op& op, Out* out, const float* c, std::size_t width, std::size_t output,
                           const row_addend* addend) {
  const std::size_t n = op.outputs - output;
  vec gate = sum_of(c);
  vec up = sum_of(c + width);
  if (op.bias != nullptr) {
    gate = gate + load_some(op.bias + output, n);
    up = up + load_some(op.bias + op.outputs + output, n);
  }
  if (addend != nullptr) {
    gate = gate + low_rank_addend(op.bf16_addends, *addend, output);
    up = up + low_rank_addend(op.bf16_addends, *addend, op.outputs + output);
  }
  store_some(out + output, gated<Act>(op.act, gate, up), n);
}

template <activation_type Act, class Out, std::size_t Columns>
inline void store_panel_as(const linear_op& op, std::size_t panel, std::size_t first_row, std::size_t rows,
                           const float* c) {
  const std::size_t width = op.gated ? Columns / 2 : Columns; // outputs of a panel
  const std::size_t output = panel * width;
  for (std::size_t row = first_row; row < first_row + rows; ++row, c += Columns) {
    Out* out = static_cast<Out*>(op.out) + (op.out_rows != nullptr ? op.out_rows[row] : row) * op.out_stride;
    const float* factor = op.factors != nullptr ? op.factors + row : nullptr;
    const row_addend* addend = op.addends != nullptr && op.addends[row].blocks != nullptr ? op.addends + row : nullptr;
    for (std::size_t i = 0; i < width && output + i < op.outputs; i += lanes)
      if (op.gated)
        gate_and_store<Act>(op, out, c + i, width, output + i, addend);
      else
        add_bias_and_store<Act>(op, out, c + i, output + i, factor, addend);
  }
}

/// Stores the sums of some rows and one panel, [rows][Columns].
template <std::size_t Columns>
inline void store_panel(const linear_op& op, std::size_t panel, std::size_t first_row, std::size_t rows,
                        const float* c) {
  with_activation(op.act.type, [&]<activation_type Act>() {
    if (op.out_bf16)
      store_panel_as<Act, std::uint16_t, Columns>(op, panel, first_row, rows, c);
    else
      store_panel_as<Act, float, Columns>(op, panel, first_row, rows, c);
  });
}

/// Whether outputs of fp8 have several scales. Then sums are scaled as they are made.
inline bool has_scale_blocks(const linear_op& op) { return op.scale_words < op.words; }

/// Multiplies the sums of a row and a panel of fp8 by the scales of its outputs.
inline void scale_codes(const linear_op& op, std::size_t panel, float* c) {
  const std::size_t word_bytes = panel_outputs * (in_pairs(op.kind) ? 2 : 1);
  const char* from = static_cast<const char*>(op.weights) + panel * fp8_panel_bytes(op.words, word_bytes, op.words);
  const auto* scales = reinterpret_cast<const float*>(from);
  for (std::size_t i = 0; i < panel_outputs; i += lanes)
    store(c + i, load(c + i) * broadcast(fp8_unit) * load(scales + i));
}

/// Stores the sums of a row and a panel of weights that have no groups.
inline void store_sums(const linear_op& op, std::size_t panel, std::size_t row, float* c) {
  if (is_fp8(op.kind) && !has_scale_blocks(op))
    scale_codes(op, panel, c);
  store_panel<panel_outputs>(op, panel, row, 1, c);
}

/// Stores the sums of a task with weights that have no groups, [rows][panels][columns].
void store_linear(const linear_op& op, const linear_task& task, float* scratch) {
  const std::size_t first = first_row_of(op, task.first_tile);
  const std::size_t last = first_row_of(op, task.first_tile + task.tiles);
  for (std::size_t row = first; row < last; ++row)
    for (std::size_t panel = 0; panel < task.panels; ++panel, scratch += panel_outputs)
      store_sums(op, task.first_panel + panel, row, scratch);
}

} // namespace
} // namespace troupe::kernels
