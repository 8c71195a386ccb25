// The part of a decoder that computes attention: products of queries, keys and values, their norms and rotations, the
// cache, and what goes back to the residual. Latent attention is decoder_latents', compressed keys are
// decoder_compressed's.
#pragma once

#include "kernels/distance_attention.hpp"
#include "kernels/ops.hpp"
#include "runtime/model/decoder/decoder_compressed.hpp"
#include "runtime/model/decoder/decoder_convolutions.hpp"
#include "runtime/model/decoder/decoder_indexer.hpp"
#include "runtime/model/decoder/decoder_latents.hpp"
#include "runtime/model/decoder/decoder_positions.hpp"
#include "runtime/model/decoder/decoder_step.hpp"

#include <memory>

namespace troupe {

class decoder_attention {
public:
  /// Borrows both.
  decoder_attention(decoder_step& step, decoder_positions& positions);

  /// K and V are convolved, too.
  void convolve_with(decoder_convolutions& convolutions) { convolutions_ = &convolutions; }

  /// residual += attention of layer `i`, which reads `normed`.
  void add(int i, const kernels::tensor& normed, kernels::kv_cache& cache, const kernels::batch& who);

  /// What the heads of layer `i` give, in the compute type, before the product with `o`; valid until the next call.
  kernels::tensor attend(int i, const kernels::tensor& normed, kernels::kv_cache& cache, const kernels::batch& who);

private:
  void attend(int i, const kernels::tensor& normed, const kernels::tensor& attended, kernels::kv_cache& cache,
              const kernels::batch& who);

  /// Puts what a product with qkv gives to where heads with narrow values have them, with zeros behind.
  void spread_values(int i, const kernels::tensor& to, const kernels::tensor& product);

  /// Norms of q, k and v that are not part of the rotation.
  void normalise_heads(int i, const kernels::tensor& qkv);

  decoder_step& step_;
  kernels::backend& backend_;
  decoder_positions& positions_;
  kernels::buffer qkv_, spread_, ones_;              // see activation_sizes
  kernels::recurrent_ops* gate_ = nullptr;           // the backend's, if the model's attention has gates
  kernels::distance_attention* distances_ = nullptr; // likewise, if it has numbers for distances
  decoder_convolutions* convolutions_ = nullptr;     // or null
  std::unique_ptr<decoder_latents> latents_;         // if the model's attention is latent
  std::unique_ptr<decoder_indexer> indexer_;         // if it is not, but sees chosen positions
  std::unique_ptr<decoder_compressed> compressed_;   // if its keys are compressed
};

} // namespace troupe
