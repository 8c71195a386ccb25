// Products of activations with packed weights: chooses between own kernels and the library. Owned by a backend, used by
// its thread on its stream.
#pragma once

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/device_scratch.hpp"
#include "kernels/cuda/library_products.hpp"
#include "kernels/cuda/linear_chooser.hpp"
#include "kernels/cuda/weight_rotation.hpp"

#include <optional>
#include <string>

namespace troupe::kernels::cuda {

struct linear_params;

class linear_layers {
public:
  linear_layers(stream& on, const cuda_options& options, const device_info& device);

  /// out [rows, outputs] = in [rows, inputs] · wᵀ + bias, or out += that; with `act`: act(that), gated weights:
  /// act(gate)
  /// * up. `bias_stride`: from a row's biases to the next row's; 0: all have the same. Throws std::invalid_argument if
  /// types or shapes do not fit.
  void run(const tensor& out, const tensor& in, const device_matrix& weights, const float* bias, store how,
           const activation* act = nullptr, std::size_t bias_stride = 0);

  /// Tells of weights that will be multiplied, so that measurements can read those of several layers in turn.
  void add(const device_matrix& weights) { rotation_.add(weights); }

  /// False in deterministic mode and where cuBLASLt was not found.
  bool has_library() const { return products_.has_value(); }

  /// The library that was found, or "no cuBLASLt".
  std::string library() const { return products_ ? products_->description() : "no cuBLASLt"; }

  /// How often scratch memory has moved.
  std::uint64_t growths() const { return trial_.growths() + (products_ ? products_->growths() : 0); }

private:
  /// Whether the library is faster for these rows; measures at the first call with a shape.
  bool wants_library(const weight_part& part, const linear_params& params);

  stream& stream_;
  std::size_t l2_bytes_;
  std::optional<library_products> products_; // none: no library was found, or none is wanted
  linear_chooser chooser_;
  weight_rotation rotation_;
  device_scratch trial_;
};

} // namespace troupe::kernels::cuda
