// Products of activations with weight matrices. Own kernels: `flat` on tensor cores with weights read once, straight
// into registers, for few rows (and, as its sums never depend on the rows, for any number in deterministic mode);
// `plain` in f32.
#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/weights.hpp"

namespace troupe::kernels::cuda {

/// out = in · wᵀ + bias of one part's outputs, or out += that; gated: out = silu(gate) * up.
struct linear_params {
  void* out = nullptr; // at the part's first output; f32, gated: of the type of in
  std::size_t out_stride = 0;
  const void* in = nullptr; // [rows][inputs], f32 (plain) or bf16 (flat)
  std::size_t in_stride = 0;
  std::size_t rows = 0;
  const float* bias = nullptr; // of the part's outputs (gated: gate's, then up's), or null
  bool add = false;
  // Of the part:
  const void* codes = nullptr;
  const void* scales = nullptr;
  std::size_t outputs = 0;
  std::size_t inputs = 0;
  std::size_t stride = 0;
  std::size_t chunks = 0;
  std::size_t bias_up = 0; // where up's biases start
  bool gated = false;
};

linear_params params_of(const weight_part& part);

/// Weights in bf16, fp8 or groups, activations in bf16.
void linear_flat(const stream& on, const weight_part& part, const linear_params& params);

/// Weights in f32, f16 or bf16, activations in f32.
void linear_plain(const stream& on, const weight_part& part, const linear_params& params);

/// Quantised weights as bf16, row by row: `to` [tiles * 16][stride], of which the part's inputs are written.
void dequantise_part(const stream& on, const weight_part& part, std::uint16_t* to, std::size_t stride);

} // namespace troupe::kernels::cuda
