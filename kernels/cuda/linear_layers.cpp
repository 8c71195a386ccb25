#include "kernels/cuda/linear_layers.hpp"

#include "kernels/cuda/device/linear/fp8.hpp"
#include "kernels/cuda/device/linear/linear.hpp"
#include "kernels/cuda/device/rows.hpp"
#include "kernels/cuda/scratch_plan.hpp"

#include <algorithm>
#include <limits>

namespace troupe::kernels::cuda {

namespace {

constexpr int first_with_fp8 = 89; // compute capability whose tensor cores take fp8

void expect(bool holds, const char* message) {
  if (!holds)
    throw std::invalid_argument(message);
}

} // namespace

linear_layers::linear_layers(stream& on, const cuda_options& options, const device_info& device)
  : stream_(on),
    expanded_memory_(options.expanded_memory),
    has_fp8_(device.major * 10 + device.minor >= first_with_fp8),
    l2_bytes_(device.l2_bytes),
    library_(options.deterministic ? nullptr : open_gemm_library()) {}

std::uint64_t linear_layers::growths() const {
  return trial_.growths() + expanded_.growths() + products_.growths() + codes_.growths() + row_scales_.growths();
}

void linear_layers::run(const tensor& out, const tensor& in, const device_matrix& weights, const float* bias,
                        store how) {
  expect(in.type == weights.compute && in.cols == weights.inputs,
         "linear: in must be of the type and columns that the weights were packed for");
  expect(out.cols == weights.outputs && out.rows == in.rows, "linear: out must be [rows of in, outputs]");
  for (const auto& part : weights.parts) {
    auto p = params_of(part);
    p.out = static_cast<char*>(out.data) + part.first * size_of(out.type);
    p.out_stride = out.stride;
    p.in = in.data;
    p.in_stride = in.stride;
    p.rows = in.rows;
    p.bias = bias != nullptr ? bias + part.first : nullptr;
    p.add = how == store::add;
    if (weights.compute == dtype::f32)
      linear_plain(stream_, part, p);
    else if (!wants_library(part, p) || !multiply_by_library(part, p))
      linear_flat(stream_, part, p);
  }
}

bool linear_layers::wants_library(const weight_part& part, const linear_params& params) {
  if (!library_ || params.rows == 0)
    return false;
  const auto measure = [&](linear_method method) {
    auto p = params;
    // Into scratch memory, because real products may be added to their output.
    p.out_stride = part.outputs;
    p.out = trial_.reserve(p.rows * p.out_stride * sizeof(float));
    // Together at least twice as large as the L2, if the model has so many, so that each is read from memory.
    const auto parts = rotation_.like(part, 2 * l2_bytes_);
    const int runs = std::max(5, static_cast<int>(parts.size()));
    for (int i = -1; i < runs; ++i) {
      if (i == 0)
        stream_.start_timer();
      const auto& turn = parts[static_cast<std::size_t>(i + runs) % parts.size()];
      p.codes = turn.codes.get();
      p.scales = turn.scales.get();
      if (method == linear_method::flat)
        linear_flat(stream_, turn, p);
      else if (!multiply_by_library(turn, p))
        return std::numeric_limits<float>::infinity();
    }
    return stream_.stop_timer() / static_cast<float>(runs);
  };
  return chooser_.choose(shape_of(part), params.rows, measure) == linear_method::library;
}

bool linear_layers::multiply_by_library(const weight_part& part, const linear_params& params) {
  if (part.kind == weight_kind::fp8 && has_fp8_ && multiply_fp8(part, params))
    return true;
  if (is_grouped(part.kind) || part.kind == weight_kind::fp8)
    return multiply_expanded(part, params);
  product p;
  p.inputs = part.inputs;
  p.in_stride = params.in_stride;
  p.weights = part.codes.get();
  p.weight_stride = part.stride;
  return multiply_pieces(part, params, p, part.gated ? rows_at_once(params.rows) : params.rows, part.gated);
}

bool linear_layers::multiply_expanded(const weight_part& part, const linear_params& params) {
  const auto tiles = expanded_tiles(part, expanded_memory_);
  for (std::size_t first = 0; first < part.tiles; first += tiles) {
    const auto piece = part.slice(first, std::min(tiles, part.tiles - first));
    const auto skipped = piece.first - part.first;
    product p;
    p.inputs = part.inputs;
    p.in_stride = params.in_stride;
    p.weight_stride = part.chunks() * chunk_inputs;
    auto* expanded = expanded_.reserve<std::uint16_t>(tiles * expanded_tile_bytes(part));
    dequantise_part(stream_, piece, expanded, p.weight_stride);
    p.weights = expanded;
    auto of_piece = params;
    of_piece.out = static_cast<char*>(params.out) + skipped * size_of(part.gated ? dtype::bf16 : dtype::f32);
    of_piece.bias = params.bias != nullptr ? params.bias + skipped : nullptr;
    if (!multiply_pieces(piece, of_piece, p, part.gated ? rows_at_once(params.rows) : params.rows, part.gated)) {
      if (first > 0)
        throw device_error("cublasLtMatmul: takes some outputs of a product, but not others");
      return false;
    }
  }
  return true;
}

bool linear_layers::multiply_fp8(const weight_part& part, const linear_params& params) {
  product p;
  p.fp8 = true;
  p.inputs = p.in_stride = p.weight_stride = part.stride; // padded with zeros
  p.weights = part.codes.get();
  quantise_rows_params q;
  q.codes = codes_.reserve<std::uint8_t>(params.rows * part.stride);
  q.scales = row_scales_.reserve<float>(params.rows * sizeof(float));
  q.in = static_cast<const std::uint16_t*>(params.in);
  q.in_stride = params.in_stride;
  q.cols = part.inputs;
  q.stride = part.stride;
  q.rows = params.rows;
  quantise_rows(stream_, q);
  p.row_scales = q.scales;
  p.output_scales = static_cast<const float*>(part.scales.get());
  if (multiply_pieces(part, params, p, part.gated ? rows_at_once(params.rows) : params.rows, part.gated))
    return true;
  p.row_scales = p.output_scales = nullptr;
  return multiply_pieces(part, params, p, rows_at_once(params.rows), true);
}

bool linear_layers::multiply_pieces(const weight_part& part, const linear_params& params, product p,
                                    std::size_t at_once, bool through_memory) {
  const auto* row_scales = p.row_scales;
  p.outputs = part.gated ? part.tiles * tile_outputs : part.outputs;
  for (std::size_t first = 0; first < params.rows; first += at_once) {
    p.rows = std::min(at_once, params.rows - first);
    if (p.fp8) {
      p.in = static_cast<const std::uint8_t*>(codes_.reserve(0)) + first * p.in_stride;
      p.row_scales = row_scales != nullptr ? row_scales + first : nullptr;
    } else {
      p.in = static_cast<const std::uint16_t*>(params.in) + first * params.in_stride;
    }
    float* out = static_cast<float*>(params.out) + first * params.out_stride; // unless gated
    p.out_stride = through_memory ? p.outputs : params.out_stride;
    p.out = through_memory ? products_.reserve<float>(at_once * p.outputs * sizeof(float)) : out;
    p.add = params.add && !through_memory;
    if (!library_->multiply(stream_, p)) {
      if (first > 0)
        throw device_error("cublasLtMatmul: takes some rows of a product, but not others");
      return false;
    }
    if (p.fp8 && p.row_scales == nullptr)
      scale_products(stream_,
                     {part.gated ? p.out : out, part.gated ? p.out_stride : params.out_stride, p.out, p.out_stride,
                      row_scales_.reserve<float>(0) + first, static_cast<const float*>(part.scales.get()), p.outputs,
                      p.rows, params.add && !part.gated});
    if (part.gated)
      silu_gate(stream_,
                {static_cast<std::uint16_t*>(params.out) + first * params.out_stride, dtype::bf16, params.out_stride,
                 p.out, p.out_stride, params.bias, params.bias_up, part.outputs, p.rows});
    else if (params.bias != nullptr)
      add_bias(stream_, out, params.out_stride, params.bias, part.outputs, p.rows);
  }
  return true;
}

} // namespace troupe::kernels::cuda
