// The part of a decoder that reads a step's tokens: embeddings, learned positions, types, and what each layer gets of each
// token (Gemma 3n and 4).
#pragma once

#include "kernels/ops.hpp"
#include "runtime/model/decoder/decoder_step.hpp"
#include "runtime/support/types.hpp"

#include <span>

namespace troupe {

class decoder_inputs {
public:
  /// Borrows the step.
  decoder_inputs(decoder_step& step);

  /// Begins a step: residual = embeddings of `tokens`. Throws failure(internal) for tokens outside the vocabulary.
  void embed(std::span<const token_id> tokens, const kernels::batch& who);

  /// residual += what layer `i` makes of its own input of each token, gated by the residual; overwrites `normed`.
  void add(int i, const kernels::tensor& normed);

  /// to = what layer `i` makes of its own input, gated by `normed`.
  void gate(int i, const kernels::tensor& to, const kernels::tensor& normed);

private:
  void make_layer_inputs(std::span<const token_id> tokens);

  /// f32 [rows, layer_inputs].
  kernels::tensor of_layer(int i) const;

  decoder_step& step_;
  kernels::backend& backend_;
  kernels::buffer inputs_; // see activation_sizes
};

} // namespace troupe
