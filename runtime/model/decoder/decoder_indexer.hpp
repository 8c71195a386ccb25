// A learned sparse indexer (DeepSeek-V3.2-Exp, section 2): small heads score the context, and rows attend to the positions
// with the highest scores, or to groups of positions. Its keys have layers of their own in the cache.
#pragma once

#include "kernels/ops.hpp"
#include "kernels/sparse_attention.hpp"
#include "runtime/model/decoder/decoder_positions.hpp"
#include "runtime/model/decoder/decoder_step.hpp"

#include <cstddef>

namespace troupe {

class decoder_indexer {
public:
  /// Borrows the step.
  decoder_indexer(decoder_step& step, decoder_positions& positions);

  /// Makes the heads' queries of `in`, [rows, what the product reads].
  void read_queries(const kernels::tensor& in, const layer_weights& layer);

  /// Chooses positions for layer `i`, if it has an indexer of its own; else those of the layer before stay.
  void choose(int i, const kernels::tensor& normed, kernels::kv_cache& cache, const kernels::batch& who);

  /// to = attention over the chosen positions.
  void attend(const kernels::tensor& to, const kernels::tensor& qkv, const kernels::attention_scores& scores,
              kernels::kv_cache& cache, int layer, const kernels::batch& who);

private:
  /// The choice of blocks, by queries and keys that are normed and rotated.
  void choose_blocks(int i, const kernels::tensor& normed, kernels::kv_cache& cache, const kernels::batch& who);

  /// Writes keys as they are, and leaves queries that are normed and rotated.
  void choose_groups(int i, const kernels::tensor& normed, kernels::kv_cache& cache, const kernels::batch& who);

  /// Without angles for a layer that does not rotate.
  kernels::rope_rows rotation_of(int layer) const;

  /// Queries of what the layer reads, normed.
  void read_hidden(int i);

  /// f32 [rows, (heads + 1) * dim]: queries of its heads, then the key.
  kernels::tensor all(std::size_t rows) const;

  decoder_step& step_;
  kernels::backend& backend_;
  kernels::sparse_attention& sparse_;
  decoder_positions& positions_;
  int top_; // positions that a row attends to, of those there can be
  rotation rope_;
  kernels::buffer rows_, weights_, input_; // see activation_sizes; weights are ones with groups
  kernels::position_choice chosen_;        // of the last layer with an indexer
};

} // namespace troupe
