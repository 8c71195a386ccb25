// cuBLASLt, for many rows. Loaded at run time by its name: without it, own kernels serve everything. Which algorithm a
// product gets is what the library's heuristics put first for its shape, so results are not schedule-invariant.
#pragma once

#include "kernels/cuda/device.hpp"

#include <memory>
#include <string>

namespace troupe::kernels::cuda {

/// out [rows][outputs], f32 = in [rows][inputs] · weights [outputs][inputs]ᵀ, or out += that; in and weights both in bf16
/// or both in fp8 (E4M3; inputs and strides multiples of 16). In fp8, with scales, what is computed is multiplied by its
/// row's and its output's.
struct product {
  float* out = nullptr;
  std::size_t out_stride = 0;
  const void* in = nullptr;
  std::size_t in_stride = 0;
  const void* weights = nullptr;
  std::size_t weight_stride = 0;
  std::size_t rows = 0, outputs = 0, inputs = 0;
  bool add = false;
  bool fp8 = false;
  const float* row_scales = nullptr;    // [rows], or null
  const float* output_scales = nullptr; // [outputs], null where row_scales is
};

class gemm_library {
public:
  virtual ~gemm_library() = default;

  /// False where the library has no algorithm for the product, because of its alignment or the device, say.
  virtual bool multiply(const stream& on, const product& p) = 0;
};

/// Null where the library is not there.
std::unique_ptr<gemm_library> open_gemm_library();

} // namespace troupe::kernels::cuda
