// What layers with tables of n-grams need beyond the ops of recurrent layers (recurrent.hpp): the tokens before a row,
// convolutions whose taps are apart, which are part of a sequence's state, and values that a row takes as far as it
// agrees with them. An optional interface of backends, beside `backend`.
#pragma once

#include "kernels/recurrent.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe::kernels {

class gram_ops {
public:
  virtual ~gram_ops() = default;

  // Ops on the rows of a step that states.begin() was told of; `index`: of state_shape::spread.

  /// to[r][k] = the token k + 1 rows before row r of its sequence, or -1 where there is none. `tokens`: of the step's
  /// rows, below 2^24. Both in host memory; to [rows, back], where the state's convolution has one channel and back + 1
  /// taps.
  virtual void recall_tokens(std::int32_t* to, const std::int32_t* tokens, std::size_t rows, state_cache& states,
                             int index) = 0;

  /// recurrent_ops::convolve with a convolution that is beside those of the layers. `in` and `out` [rows, channels] f32,
  /// not the same memory.
  virtual void convolve_spread(const tensor& out, const tensor& in, const convolution& how, state_cache& states,
                               int index) = 0;

  /// out[r] = sigmoid(root(scale * (a[r] · b[r]))) * value[r], where root(x) is the square root of the magnitude, at
  /// least 1e-6, with the sign of x. f32, all of one shape.
  virtual void take_agreed(const tensor& out, const tensor& a, const tensor& b, const tensor& value, float scale) = 0;
};

} // namespace troupe::kernels
