// Attention over compressed keys (compressed_config; DeepSeek V4): a row sees the last tokens, and entries that are made of
// groups of tokens, all of them or those that an indexer chooses. A key is its value, too, so what heads give is rotated
// back, and each group of heads has a product of low rank.
#pragma once

#include "kernels/compressed_attention.hpp"
#include "kernels/ops.hpp"
#include "runtime/model/decoder/decoder_positions.hpp"
#include "runtime/model/decoder/decoder_step.hpp"

namespace troupe {

class decoder_compressed {
public:
  /// Borrows both.
  decoder_compressed(decoder_step& step, decoder_positions& positions);

  /// attended = what the groups of heads of layer `i` give, [rows, groups * group_rank].
  void attend(int i, const kernels::tensor& normed, const kernels::tensor& attended, kernels::kv_cache& cache,
              const kernels::batch& who);

private:
  /// Makes entries: what they are made of goes to layer `from` of the cache, and they to layer `to`.
  void make_entries(const entry_weights& w, int rate, bool overlaps, const kernels::rope_rows& rope, int from, int to,
                    const kernels::tensor& normed, kernels::kv_cache& cache, const kernels::batch& who);

  /// Chooses among the entries of layer `i` by queries made of `latents`.
  void choose(int i, const kernels::tensor& latents, const kernels::tensor& normed, kernels::kv_cache& cache,
              const kernels::batch& who);

  decoder_step& step_;
  kernels::backend& backend_;
  kernels::compressed_attention& compressed_;
  decoder_positions& positions_;
  rotation index_rope_;
  kernels::buffer down_, qkv_, made_, over_, inputs_, index_, index_weights_; // see activation_sizes
  kernels::buffer ones_;                                                      // weights of the queries' norm
  kernels::position_choice chosen_;                                           // of the layer at hand
};

} // namespace troupe
