#include "kernels/cuda/weights.hpp"

#include "kernels/cuda/device/common.hpp"
#include "kernels/cuda/device/rows.hpp"
#include "kernels/cuda/expect.hpp"
#include "kernels/formats/weight_groups.hpp"

#include <algorithm>

namespace troupe::kernels::cuda {

namespace {

constexpr std::size_t stride_unit = 32; // inputs to which rows of floats are padded

/// The kind that a matrix is packed as: a quantised one, or bf16 for floats.
weight_kind kind_of(const stored_matrix& m, quantization how) {
  const auto exact = traits_of(m.format).on_gpu;
  if (!is_float(m.format) && !has_scale_blocks(m.format))
    return exact;
  switch (how) {
    case quantization::int8: return weight_kind::q8;
    case quantization::int4: return weight_kind::q4_min;
    case quantization::fp8: return weight_kind::fp8;
    case quantization::bf16:
    case quantization::none: break;
  }
  return weight_kind::bf16;
}

/// The kind for activations in f32: floats as stored if all matrices are stored alike, else f32.
weight_kind wide_kind(std::span<const stored_matrix> stacked) {
  const auto format = stacked.front().format;
  const bool same = std::ranges::all_of(stacked, [&](const auto& m) { return m.format == format; });
  return same && is_float(format) ? traits_of(format).on_gpu : weight_kind::f32;
}

} // namespace

std::size_t code_bytes(const weight_part& part) {
  return is_grouped(part.kind) ? part.tiles * part.chunks() * chunk_code_bytes(part.kind)
                               : part.tiles * tile_outputs * part.stride * layout_of(part.kind).element_bytes;
}

std::size_t scale_bytes(const weight_part& part) {
  if (layout_of(part.kind).scales == scale_layout::per_output)
    return part.tiles * tile_outputs * sizeof(float);
  return part.tiles * part.chunks() * chunk_scale_bytes(part.kind);
}

weight_part weight_part::slice(std::size_t first_tile, std::size_t count) const {
  const auto within = [&](const buffer& memory, std::size_t bytes) {
    return buffer(memory, static_cast<char*>(memory.get()) + first_tile * (bytes / tiles));
  };
  auto part = *this;
  const std::size_t tile = gated ? tile_outputs / 2 : tile_outputs;
  part.first = first + first_tile * tile;
  part.outputs = std::min(outputs - first_tile * tile, count * tile);
  part.tiles = count;
  part.codes = within(codes, code_bytes(*this));
  if (scales)
    part.scales = within(scales, scale_bytes(*this));
  return part;
}

std::unique_ptr<device_matrix> plan_weights(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                                            bool gated) {
  expect(!stacked.empty(), "no matrix to pack");
  expect(compute != dtype::f16, "matrices are packed for f32 or bf16, not for f16");
  for (const auto& m : stacked) {
    expect(m.cols == stacked.front().cols, "matrices that are packed together must have the same number of inputs");
    expect(m.cols % block_inputs(m.format) == 0, "a matrix in blocks must have whole blocks of inputs");
  }
  expect(!gated || (stacked.size() == 2 && stacked[0].rows == stacked[1].rows),
         "gate and up must have the same number of outputs");
  auto to = std::make_unique<device_matrix>();
  to->inputs = stacked.front().cols;
  to->compute = compute;
  to->gated = gated;
  const auto kind = [&](const stored_matrix& m) { return compute == dtype::f32 ? weight_kind::bf16 : kind_of(m, how); };
  for (std::size_t first = 0, i = 0; i < stacked.size(); ++i) {
    const bool alike = gated || (i + 1 < stacked.size() && kind(stacked[i + 1]) == kind(stacked[first]));
    if (alike && i + 1 < stacked.size())
      continue;
    const auto same = stacked.subspan(first, i + 1 - first);
    weight_part part;
    part.first = to->outputs;
    part.stored = same.size();
    part.inputs = to->inputs;
    part.gated = gated;
    for (const auto& m : same)
      part.outputs += m.rows;
    if (gated)
      part.outputs /= 2;
    part.tiles = gated ? ceil_div<std::size_t>(part.outputs, tile_outputs / 2)
                       : ceil_div<std::size_t>(part.outputs, tile_outputs);
    const bool differ = gated && kind(same[0]) != kind(same[1]);
    part.kind = compute == dtype::f32 && how != quantization::bf16 ? wide_kind(same)
      : differ                                                     ? weight_kind::bf16
                                                                   : kind(same.front());
    if (part.kind == weight_kind::fp8)
      part.stride = part.chunks() * chunk_inputs;
    else if (!is_grouped(part.kind))
      part.stride = ceil_div(part.inputs, stride_unit) * stride_unit;
    to->bytes += code_bytes(part) + scale_bytes(part);
    to->outputs += part.outputs;
    to->parts.push_back(std::move(part));
    first = i + 1;
  }
  return to;
}

std::unique_ptr<device_table> plan_table(const stored_matrix& table) {
  expect(table.cols % block_inputs(table.format) == 0, "load_table: the columns must fill the format's blocks");
  auto to = std::make_unique<device_table>();
  to->outputs = table.rows;
  to->inputs = table.cols;
  to->grouped = has_groups(table.format) && !has_half_minima(table.format); // else expanded
  to->type = is_float(table.format) ? dtype_of(table.format) : dtype::f32;
  to->row_bytes = to->grouped ? table.cols / group_inputs * sizeof(table_group)
    : is_float(table.format)  ? row_bytes(table.format, table.cols)
                              : table.cols * sizeof(float);
  to->bytes = table.rows * to->row_bytes;
  return to;
}

} // namespace troupe::kernels::cuda
