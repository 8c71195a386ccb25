// cuBLASLt, for products of many rows. It is looked for at run time (library_places.hpp); without it, own kernels
// compute everything. The library chooses an algorithm by the shape of a product, so its results are not
// schedule-invariant.
#pragma once

#include "kernels/cuda/device.hpp"

#include <memory>
#include <string>

namespace troupe::kernels::cuda {

/// out [rows][outputs], f32 = in [rows][inputs] · weights [outputs][inputs]ᵀ, or out += that; in and weights both in
/// bf16 or both in fp8 (E4M3; inputs and strides multiples of 16). fp8 products may be multiplied by a scale per row
/// and per output.
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
  const float* output_scales = nullptr; // [outputs]; null if row_scales is null
};

class gemm_library {
public:
  virtual ~gemm_library() = default;

  /// False if the library has no algorithm for the product, for example because of its alignment or the device.
  virtual bool multiply(const stream& on, const product& p) = 0;

  /// What the log says of it: name, version and file.
  virtual std::string description() const = 0;
};

/// Null if the library is not found; `why_none`, unless null, then receives where it was looked for.
std::unique_ptr<gemm_library> open_gemm_library(std::string* why_none = nullptr);

} // namespace troupe::kernels::cuda
