#include "kernels/cuda/library_products.hpp"

#include "kernels/cuda/device/linear/fp8.hpp"
#include "kernels/cuda/device/linear/linear.hpp"
#include "kernels/cuda/device/rows.hpp"
#include "kernels/cuda/scratch_plan.hpp"

#include <algorithm>

namespace troupe::kernels::cuda {

namespace {

constexpr int first_with_fp8 = 89; // compute capability whose tensor cores take fp8

/// Whether products are kept in scratch memory until an activation makes them outputs.
bool is_shaped(const linear_params& p) { return p.gated || p.activated; }

std::size_t rows_in_memory(const linear_params& p) { return is_shaped(p) ? rows_at_once(p.rows) : p.rows; }

} // namespace

library_products::library_products(stream& on, std::unique_ptr<gemm_library> library, const device_info& device,
                                   std::size_t expanded_memory)
  : stream_(on),
    library_(std::move(library)),
    has_fp8_(device.major * 10 + device.minor >= first_with_fp8),
    expanded_memory_(expanded_memory) {}

std::uint64_t library_products::growths() const {
  return expanded_.growths() + products_.growths() + codes_.growths() + row_scales_.growths();
}

bool library_products::multiply(const weight_part& part, const linear_params& params) {
  if (part.kind == weight_kind::fp8 && has_fp8_ && multiply_fp8(part, params))
    return true;
  if (is_grouped(part.kind) || part.kind == weight_kind::fp8)
    return multiply_expanded(part, params);
  product p;
  p.inputs = part.inputs;
  p.in_stride = params.in_stride;
  p.weights = part.codes.get();
  p.weight_stride = part.stride;
  return multiply_pieces(part, params, p, rows_in_memory(params), is_shaped(params));
}

bool library_products::multiply_expanded(const weight_part& part, const linear_params& params) {
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
    of_piece.out = static_cast<char*>(params.out) + skipped * size_of(params.out_type(dtype::bf16));
    of_piece.bias = params.bias != nullptr ? params.bias + skipped : nullptr;
    if (!multiply_pieces(piece, of_piece, p, rows_in_memory(params), is_shaped(params))) {
      if (first > 0)
        throw device_error("cublasLtMatmul: takes some outputs of a product, but not others");
      return false;
    }
  }
  return true;
}

bool library_products::multiply_fp8(const weight_part& part, const linear_params& params) {
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
  if (multiply_pieces(part, params, p, rows_in_memory(params), is_shaped(params)))
    return true;
  p.row_scales = p.output_scales = nullptr;
  return multiply_pieces(part, params, p, rows_at_once(params.rows), true);
}

bool library_products::multiply_pieces(const weight_part& part, const linear_params& params, product p,
                                       std::size_t at_once, bool through_memory) {
  const bool shaped = is_shaped(params);
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
    float* out = static_cast<float*>(params.out) + first * params.out_stride; // unless activated
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
                     {shaped ? p.out : out, shaped ? p.out_stride : params.out_stride, p.out, p.out_stride,
                      row_scales_.reserve<float>(0) + first, static_cast<const float*>(part.scales.get()), p.outputs,
                      p.rows, params.add && !shaped});
    if (shaped)
      activate(stream_,
               {static_cast<std::uint16_t*>(params.out) + first * params.out_stride, dtype::bf16, params.out_stride,
                p.out, p.out_stride, params.bias != nullptr ? params.bias + first * params.bias_stride : nullptr,
                params.bias_up, params.bias_stride, part.outputs, p.rows, params.act, part.gated});
    else if (params.bias != nullptr)
      add_bias(stream_, out, params.out_stride, params.bias, part.outputs, p.rows);
  }
  return true;
}

} // namespace troupe::kernels::cuda
