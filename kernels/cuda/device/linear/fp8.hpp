// Launchers for fp8 products of many rows: activations become E4M3 with a scale per row, as weights have one per
// output, and the library multiplies the codes.
#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/weights.hpp"

namespace troupe::kernels::cuda {

/// Quantises rows of bf16. Codes are ordered as in weights (fp8_place) and padded with zeros up to `stride`, a multiple
/// of 4. The largest magnitude of a row becomes 448. The scale of a row that is not finite is NaN.
struct quantise_rows_params {
  std::uint8_t* codes = nullptr; // [rows][stride]
  float* scales = nullptr;       // [rows]
  const std::uint16_t* in = nullptr;
  std::size_t in_stride = 0;
  std::size_t cols = 0;
  std::size_t stride = 0;
  std::size_t rows = 0;
};
void quantise_rows(const stream& on, const quantise_rows_params& params);

/// out = x * scale of the row * scale of the output, or out += that. x is [rows][x_stride] and may be out.
struct scale_products_params {
  float* out = nullptr;
  std::size_t out_stride = 0;
  const float* x = nullptr;
  std::size_t x_stride = 0;
  const float* row_scales = nullptr;
  const float* output_scales = nullptr;
  std::size_t outputs = 0;
  std::size_t rows = 0;
  bool add = false;
};
void scale_products(const stream& on, const scale_products_params& params);

/// Expands a part in fp8 to bf16: `to` [tiles * 16][stride]; only the part's inputs are written.
void dequantise_fp8(const stream& on, const weight_part& part, std::uint16_t* to, std::size_t stride);

} // namespace troupe::kernels::cuda
