// Multiplies with cuBLASLt: brings weights and activations into the form that it takes (codes expanded to bf16, or
// activations in fp8), then scales and gates the results. Owned by linear_layers, used by its thread on its stream.
#pragma once

#include "kernels/cuda/device_scratch.hpp"
#include "kernels/cuda/gemm_library.hpp"
#include "kernels/cuda/weights.hpp"

#include <memory>
#include <string>

namespace troupe::kernels::cuda {

struct linear_params;

class library_products {
public:
  library_products(stream& on, std::unique_ptr<gemm_library> library, const device_info& device,
                   std::size_t expanded_memory);

  /// The product of params, with its bias, gate and sum; false if the library has no algorithm for it.
  bool multiply(const weight_part& part, const linear_params& params);

  std::string description() const { return library_->description(); }

  /// How often scratch memory has moved.
  std::uint64_t growths() const;

private:
  // These return false if the library has no algorithm for the product.
  /// Weights as bf16, some of the outputs at a time.
  bool multiply_expanded(const weight_part& part, const linear_params& params);
  /// Activations as codes. Scales are applied by the library if it can, else by a kernel afterwards.
  bool multiply_fp8(const weight_part& part, const linear_params& params);
  /// `at_once` rows at a time. `through_memory`: products are kept in scratch memory until they are scaled or gated.
  bool multiply_pieces(const weight_part& part, const linear_params& params, product p, std::size_t at_once,
                       bool through_memory);

  stream& stream_;
  std::unique_ptr<gemm_library> library_;
  bool has_fp8_;
  std::size_t expanded_memory_;
  device_scratch expanded_, products_, codes_, row_scales_;
};

} // namespace troupe::kernels::cuda
