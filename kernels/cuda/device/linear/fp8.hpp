// FP8 products of many rows: activations become E4M3 with a scale for each row, as weights have one for each output; the
// library multiplies the codes. Launchers.
#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/weights.hpp"

namespace troupe::kernels::cuda {

/// Rows of bf16 as codes, in the order in which weights have them (fp8_place), padded with zeros up to `stride`, a
/// multiple of 4: the largest magnitude of a row becomes 448. A row that is not finite has a scale of NaN.
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

/// out = x * its row's scale * its output's scale, or out += that; x [rows][x_stride], which may be out.
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

/// A part in fp8 as bf16: `to` [tiles * 16][stride], of which the part's inputs are written.
void dequantise_fp8(const stream& on, const weight_part& part, std::uint16_t* to, std::size_t stride);

} // namespace troupe::kernels::cuda
