// Launchers for kernels on rows of activations: embeddings, RMS norm, the activation of an MLP, biases, block copies.
// Callers check the arguments.
#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/device/kv_layout.hpp"
#include "kernels/formats/activation.hpp"

namespace troupe::kernels::cuda {

/// 32 weights of a quantised embedding table: code * scale of its half + minimum.
struct table_group {
  float scales[2];
  float minimum;
  std::int8_t codes[32];
};

/// out[r] = table[tokens[r]], or += that, as f32; the table in f32, f16, bf16 or table_groups.
struct embed_params {
  float* out = nullptr;
  std::size_t out_stride = 0;
  const void* table = nullptr;
  dtype type = dtype::f32;
  bool grouped = false;
  std::size_t cols = 0;
  const std::int32_t* tokens = nullptr; // device memory
  std::size_t rows = 0;
  bool add = false;
};
void embed(const stream& on, const embed_params& params);

struct rms_norm_params {
  void* out = nullptr;
  dtype out_type = dtype::f32; // or bf16
  std::size_t out_stride = 0;
  const float* x = nullptr;
  std::size_t x_stride = 0;
  const float* weight = nullptr;
  float eps = 0;
  std::size_t cols = 0;
  const std::int32_t* gather = nullptr; // rows of x in device memory, or null
  std::size_t rows = 0;
};
void rms_norm(const stream& on, const rms_norm_params& params);

/// out[r][o] = act(x[r][o]); gated: act(x[gate of o]) * x[up of o], where x holds tiles of 16 columns, 8 of gate, then
/// the same 8 of up. Biases, unless null, are added to x first; gated: gate's, and up's at offset `bias_up`. With a
/// stride, each row has its own.
struct activate_params {
  void* out = nullptr;
  dtype out_type = dtype::f32;
  std::size_t out_stride = 0;
  const float* x = nullptr;
  std::size_t x_stride = 0;
  const float* bias = nullptr;
  std::size_t bias_up = 0;
  std::size_t bias_stride = 0;
  std::size_t outputs = 0;
  std::size_t rows = 0;
  activation act;
  bool gated = false;
};
void activate(const stream& on, const activate_params& params);

/// x[r] += bias.
void add_bias(const stream& on, float* x, std::size_t stride, const float* bias, std::size_t cols, std::size_t rows);

/// Copies blocks of every layer concurrently: no block may be both read and written.
struct copy_blocks_params {
  void* cache = nullptr;
  std::size_t block_bytes = 0; // of one layer, a multiple of 16
  std::size_t layer_bytes = 0;
  int layers = 0;
  const block_copy* copies = nullptr; // device memory
  std::size_t count = 0;
};
void copy_blocks(const stream& on, const copy_blocks_params& params);

} // namespace troupe::kernels::cuda
