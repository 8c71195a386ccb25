// The part of a decoder that computes recurrent layers: a product in, a convolution, a recurrence with a gated norm (except
// for short convolutions), and a product out.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/model/decoder/decoder_step.hpp"

#include <memory>

namespace troupe {

class decoder_states {
public:
  /// Borrows the step.
  decoder_states(decoder_step& step);

  /// Begins a step's states, before its first layer: those of the batch, or the decoder's own.
  void begin(const kernels::batch& who);

  /// residual += the recurrence of layer `i`, which reads `normed`.
  void add(int i, const kernels::tensor& normed);

  /// The states of the step that has begun; null if no layer has any.
  kernels::state_cache* current() const { return states_; }

  /// Ends the states that `begin` began, behind the last layer.
  void end();

private:
  /// What a row of Mamba 1 makes of what it has convolved: `rates` [rows, inner] and `both`, [B | C].
  void select(int i, const kernels::tensor& convolved, kernels::tensor& rates, kernels::tensor& both);

  decoder_step& step_;
  kernels::backend& backend_;
  kernels::recurrent_ops& recurrence_;
  kernels::buffer in_, convolved_, recurred_, rates_, low_; // see activation_sizes
  kernels::buffer ones_;                                    // weights of norms without; or null
  std::unique_ptr<kernels::state_cache> own_states_;        // of batches that bring none
  kernels::state_cache* states_ = nullptr;                  // the step's
  bool ends_ = false;                                       // no other decoder began them, or goes on with them
};

} // namespace troupe
