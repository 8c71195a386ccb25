// The part of a decoder for blocks of attention and an MLP that several layers share (shared_blocks_config). It keeps the
// embeddings of a step's rows beside their residual, which the blocks read together, and which spans of layers pass on.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/model/decoder/decoder_attention.hpp"
#include "runtime/model/decoder/decoder_step.hpp"

namespace troupe {

class decoder_blocks {
public:
  /// Borrows both.
  decoder_blocks(decoder_step& step, decoder_attention& attention);

  /// Begins a step behind its embeddings, or behind what the span before passed on.
  void begin();

  /// normed = the norm of what layer `i` makes with its block, added to the residual: what its recurrence reads.
  void read(int i, const kernels::tensor& normed, kernels::kv_cache& cache, const kernels::batch& who);

  /// Ends a step whose rows go on to another span.
  void end();

  /// What spans pass on: the residual, then the embeddings, f32 [rows, 2 hidden].
  kernels::tensor passed() const;

private:
  kernels::tensor half(std::size_t index) const;

  decoder_step& step_;
  kernels::backend& backend_;
  decoder_attention& attention_;
  kernels::buffer joined_, read_; // see activation_sizes
};

} // namespace troupe
