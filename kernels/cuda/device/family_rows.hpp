// Launchers for kernels on rows of activations that further families need (kernels/ops.hpp): layer norm, scaling, sums,
// products and copies of rows. Callers check the arguments.
#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/ops.hpp"

namespace troupe::kernels::cuda {

/// out[i] = (x[r] - mean) / sqrt(variance + eps) * weight + bias, with r = gather[i] or i.
struct layer_norm_params {
  void* out = nullptr;
  dtype out_type = dtype::f32; // or bf16
  std::size_t out_stride = 0;
  const float* x = nullptr;
  std::size_t x_stride = 0;
  const float* weight = nullptr;
  const float* bias = nullptr; // or null
  float eps = 0;
  std::size_t cols = 0;
  const std::int32_t* gather = nullptr; // in device memory, or null
  std::size_t rows = 0;
};
void layer_norm(const stream& on, const layer_norm_params& params);

/// x *= factor; then x = cap * tanh(x / cap), unless cap is 0. f32. A factor of 0 gives 0 even for NaN.
void scale_rows(const stream& on, const tensor& x, float factor, float cap);

/// x = min(max(x, -limit), limit), f32.
void clamp_rows(const stream& on, const tensor& x, float limit);

// `indices` and `factors` are in device memory, or null; see backend::add_rows, multiply_rows and gather_rows.
void add_rows(const stream& on, const tensor& to, const tensor& x, float factor, const std::int32_t* indices,
              const float* factors);
void multiply_rows(const stream& on, const tensor& to, const tensor& x);
void gather_rows(const stream& on, const tensor& to, const tensor& from, const std::int32_t* indices);

// See gaussian_gates; `to` is device memory.
void mean_squares(const stream& on, float* to, const tensor& x);
void gate_gaussian(const stream& on, const tensor& out, const tensor& gate, const tensor& up, float deviations);

} // namespace troupe::kernels::cuda
