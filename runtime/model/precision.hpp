// The types of a model's computation, weights and KV cache.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/model/model_config.hpp"

#include <cstddef>
#include <string>

namespace troupe {

/// An approximation: shares of the inputs of an MLP's products, those of the smallest magnitude, that count as zero.
struct mlp_sparsity {
  float down = 0; // of the inputs of the down projection
  float up = 0;   // of the inputs of gate and up

  explicit operator bool() const { return down > 0 || up > 0; }
  bool operator==(const mlp_sparsity&) const = default;
};

struct precision {
  kernels::dtype compute = kernels::dtype::f32;                // activations, and weights stored as floats
  kernels::quantization weights = kernels::quantization::none; // weights stored as floats; blocks stay as they are
  kernels::kv_type kv = kernels::kv_type::f32;                 // the KV cache
  mlp_sparsity sparsity;                                       // none: exact
  float attention_threshold = 0;                               // of attention's weights; 0: exact

  /// K and V in f32 for f32, else in bf16.
  precision(kernels::dtype compute, kernels::quantization weights = kernels::quantization::none)
    : precision(compute, weights, compute == kernels::dtype::f32 ? kernels::kv_type::f32 : kernels::kv_type::bf16) {}
  precision(kernels::dtype compute, kernels::quantization weights, kernels::kv_type kv)
    : compute(compute), weights(weights), kv(kv) {}
};

/// Refuses sparsity where it gains nothing, and where it is not implemented: throws failure(unsupported) naming what is
/// in its way. `backend` is the one that will pack the weights.
void check_sparsity(const checkpoint& tensors, const model_config& config, const kernels::backend& backend,
                    const precision& precision);

/// The default type to compute in: bf16 for bf16 and for quantised weights, whose own error is larger than bf16's, else
/// f32. `f16_as_bf16`: bf16 for f16, too.
kernels::dtype natural_compute(const checkpoint& tensors, kernels::quantization weights = kernels::quantization::none,
                               bool f16_as_bf16 = false);

/// The type of most numbers of the matrices once loaded: "BF16", "Q4_K", or "int8" for floats that are quantised.
std::string weights_kind(const checkpoint& tensors, kernels::quantization weights);

/// The shape of the model's KV cache.
kernels::kv_shape kv_shape_of(const model_config& config, precision precision, std::size_t blocks);

} // namespace troupe
