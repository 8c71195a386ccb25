// What a learned indexer thinks of the positions of one partition of the context: scores of its small heads over keys
// of their own, those above 0 summed with weights. A position's sum takes the heads in their order, whatever else is in
// the tile. Only for the target units.
#pragma once

#include "kernels/cpu/isa/attention_kernel.hpp"

namespace troupe::kernels {
namespace {

template <class Products>
void sum_scores(const attention_op& op, const attention_tile& tile, int partition, const float* weights, bool first,
                float* sums) {
  tile_scratch scratch;
  const int seen = at_most(tile.queries[0].end - partition * partition_size, partition_size);
  const int last = (seen + block_size - 1) / block_size;
  const int before = partition * partition_blocks::blocks_per_partition;
  const partition_blocks blocks(op, tile, tile.blocks + before, 0, last, tile.end_block - before);
  const Products products(op, tile, scratch);
  products.score(blocks, {0, tile.count}, 0, last);
  for (int t = 0; t < last * block_size; t += lanes) {
    vec sum = first ? zero() : load(sums + t);
    for (int i = 0; i < tile.count; ++i) {
      vec score = load(scratch.p[i] + t);
      if constexpr (Products::scaled)
        score = score * load(scratch.k_scales + t);
      sum = fma(broadcast(weights[i]), max(score, zero()), sum);
    }
    store(sums + t, sum);
  }
}

void score_positions(const attention_op& op, const attention_tile& tile, int partition, const float* weights,
                     bool first, float* sums) {
  switch (op.cache.type) {
    case kv_type::f32: return sum_scores<vector_products<f32_cells>>(op, tile, partition, weights, first, sums);
#if defined(__AMX_BF16__)
    case kv_type::bf16: return sum_scores<tile_products<bf16_cells>>(op, tile, partition, weights, first, sums);
    case kv_type::int8: return sum_scores<tile_products<int8_cells>>(op, tile, partition, weights, first, sums);
    case kv_type::fp8: return sum_scores<tile_products<fp8_cells>>(op, tile, partition, weights, first, sums);
#elif defined(__AVX512BF16__)
    case kv_type::bf16: return sum_scores<vector_products<bf16_cells>>(op, tile, partition, weights, first, sums);
    case kv_type::int8:
      return sum_scores<vector_products<code_pairs<int8_cells>>>(op, tile, partition, weights, first, sums);
    case kv_type::fp8:
      return sum_scores<vector_products<code_pairs<fp8_cells>>>(op, tile, partition, weights, first, sums);
#else
    case kv_type::bf16: return sum_scores<vector_products<bf16_cells>>(op, tile, partition, weights, first, sums);
    case kv_type::int8: return sum_scores<vector_products<int8_cells>>(op, tile, partition, weights, first, sums);
    case kv_type::fp8: return sum_scores<vector_products<fp8_cells>>(op, tile, partition, weights, first, sums);
#endif
  }
}

} // namespace
} // namespace troupe::kernels
