// Latent attention (https://arxiv.org/abs/2405.04434, section 2.1): keys and values are kept as one latent, in whose space
// queries are compared. With an indexer, a row attends the positions that it chooses.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/model/decoder/decoder_indexer.hpp"
#include "runtime/model/decoder/decoder_positions.hpp"
#include "runtime/model/decoder/decoder_step.hpp"

#include <memory>

namespace troupe {

class decoder_latents {
public:
  /// Borrows both.
  decoder_latents(decoder_step& step, decoder_positions& positions);

  /// attended = the heads' values of layer `i`, [rows, heads * value]; overwrites the step's rows of `attended`.
  void attend(int i, const kernels::tensor& normed, const kernels::tensor& attended, kernels::kv_cache& cache,
              const kernels::batch& who);

private:
  /// Fills `qkv_`: queries in the space of latents, the key and the value of each row.
  void make_latents(int i, const kernels::tensor& normed);

  decoder_step& step_;
  kernels::backend& backend_;
  decoder_positions& positions_;
  kernels::buffer qkv_, down_, queries_, latents_, inputs_; // see activation_sizes
  std::unique_ptr<decoder_indexer> indexer_;                // if the model has one
  kernels::recurrent_ops* gate_ = nullptr;                  // the backend's, if the model's attention has gates
};

} // namespace troupe
