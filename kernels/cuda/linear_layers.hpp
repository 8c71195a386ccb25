// Products of activations with packed weights: chooses between own kernels and the library, and brings weights and
// activations into the form that the library takes. Owned by a backend, used by its thread on its stream.
#pragma once

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/device_scratch.hpp"
#include "kernels/cuda/gemm_library.hpp"
#include "kernels/cuda/linear_chooser.hpp"
#include "kernels/cuda/weight_rotation.hpp"

#include <memory>

namespace troupe::kernels::cuda {

struct linear_params;

class linear_layers {
public:
  linear_layers(stream& on, const cuda_options& options, const device_info& device);

  /// out [rows, outputs] = in [rows, inputs] · wᵀ + bias, or out += that; gated weights: silu(gate) * up. Throws
  /// std::invalid_argument if types or shapes do not fit.
  void run(const tensor& out, const tensor& in, const device_matrix& weights, const float* bias, store how);

  /// Tells of weights that will be multiplied, so that measurements can read those of several layers in turn.
  void add(const device_matrix& weights) { rotation_.add(weights); }

  /// False in deterministic mode and where cuBLASLt was not found.
  bool has_library() const { return library_ != nullptr; }

  /// The library that was found, or "no cuBLASLt".
  std::string library() const { return library_ ? library_->description() : "no cuBLASLt"; }

  /// How often scratch memory has moved.
  std::uint64_t growths() const;

private:
  /// Whether the library is faster for these rows; measures at the first call with a shape.
  bool wants_library(const weight_part& part, const linear_params& params);

  /// These return false if the library has no algorithm for the product.
  bool multiply_by_library(const weight_part& part, const linear_params& params);
  /// Weights as bf16, some of the outputs at a time.
  bool multiply_expanded(const weight_part& part, const linear_params& params);
  /// Activations as codes. Scales are applied by the library if it can, else by a kernel afterwards.
  bool multiply_fp8(const weight_part& part, const linear_params& params);
  /// `at_once` rows at a time. `through_memory`: products are kept in scratch memory until they are scaled or gated.
  bool multiply_pieces(const weight_part& part, const linear_params& params, product p, std::size_t at_once,
                       bool through_memory);

  stream& stream_;
  std::size_t expanded_memory_;
  bool has_fp8_;
  std::size_t l2_bytes_;
  std::unique_ptr<gemm_library> library_; // null: not found, or not wanted
  linear_chooser chooser_;
  weight_rotation rotation_;
  device_scratch trial_, expanded_, products_, codes_, row_scales_;
};

} // namespace troupe::kernels::cuda
