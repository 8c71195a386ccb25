// What Gemma 3n needs of rows beyond the ops of all backends: mean squares of rows, and gates that keep only what
// exceeds the row's mean by so many standard deviations. An optional interface of backends, beside `backend`.
#pragma once

#include "kernels/ops.hpp"

namespace troupe::kernels {

class gaussian_gates {
public:
  virtual ~gaussian_gates() = default;

  /// to[r] = the mean of x[r]^2, in host memory. x is f32.
  virtual void mean_squares(float* to, const tensor& x) = 0;

  /// out[r] = gelu_tanh(max(gate[r] - mean(gate[r]) - deviations * deviation(gate[r]), 0)) * up[r]. `gate` and `up` are
  /// f32, `out` is f32 or bf16.
  virtual void gate_gaussian(const tensor& out, const tensor& gate, const tensor& up, float deviations) = 0;
};

} // namespace troupe::kernels
