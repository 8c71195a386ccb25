// Launchers for products of activations with weights. `flat` uses tensor cores and reads each weight once, directly
// into registers: for few rows, and for any number in deterministic mode, because a row's sums do not depend on other
// rows. `plain` computes in f32.
#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/weights.hpp"
#include "kernels/formats/activation.hpp"

namespace troupe::kernels::cuda {

/// out = in · wᵀ + bias for the outputs of one part, or out += that. Activated: out = act(that); gated: out = act(gate)
/// * up.
struct linear_params {
  void* out = nullptr; // at the part's first output; f32, activated or gated: of the type of in
  std::size_t out_stride = 0;
  const void* in = nullptr; // [rows][inputs], f32 (plain) or bf16 (flat)
  std::size_t in_stride = 0;
  std::size_t rows = 0;
  const float* bias = nullptr; // [outputs], gated: gate's, then up's; or null
  std::size_t bias_stride = 0; // of rows that have biases of their own, which only activated ones do
  bool add = false;
  // The part of the matrix:
  const void* codes = nullptr;
  const void* scales = nullptr;
  std::size_t outputs = 0;
  std::size_t inputs = 0;
  std::size_t stride = 0;
  std::size_t chunks = 0;
  std::size_t bias_up = 0; // offset of up's biases
  bool gated = false;
  bool activated = false; // unless gated
  activation act;

  dtype out_type(dtype in) const { return gated || activated ? in : dtype::f32; }
};

linear_params params_of(const weight_part& part);

/// Weights in bf16, fp8 or groups, activations in bf16.
void linear_flat(const stream& on, const weight_part& part, const linear_params& params);

/// Weights in f32, f16 or bf16, activations in f32.
void linear_plain(const stream& on, const weight_part& part, const linear_params& params);

/// Expands quantised weights to bf16, row by row: `to` [tiles * 16][stride], aligned to 8 bytes, `stride` a multiple of
/// 4. Rows are written in fours of inputs.
void dequantise_part(const stream& on, const weight_part& part, std::uint16_t* to, std::size_t stride);

} // namespace troupe::kernels::cuda
