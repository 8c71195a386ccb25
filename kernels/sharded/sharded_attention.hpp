// Divides attention among ranks. With at least as many KV heads as ranks, each rank has neighbouring KV heads with all
// of their query heads, and K and V of these alone. With one KV head for all (latent and multi-query attention), every
// rank reads it for queries of its own. In between, ranks divide the rows of a step; they do so for prompts, too, where
// some rank would have more heads than others. All of it gives the same bits.
#pragma once

#include "kernels/block_transfer.hpp"
#include "kernels/compressed_attention.hpp"
#include "kernels/distance_attention.hpp"
#include "kernels/sharded/rank_team.hpp"
#include "kernels/sharded/sharded_cache.hpp"
#include "kernels/sparse_attention.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe::kernels {

class sharded_attention {
public:
  explicit sharded_attention(rank_team& ranks) : ranks_(ranks) {}

  std::unique_ptr<kv_cache> make_cache(const kv_shape& shape);
  void copy(sharded_cache& cache, std::span<const block_copy> copies);
  void copy_tokens(sharded_cache& cache, int layer, std::span<const token_copy> copies);

  /// Move blocks as block_transfer does. The form is that of one rank.
  void export_blocks(const sharded_cache& cache, std::span<const block_export> blocks);
  void import_blocks(sharded_cache& cache, std::span<const block_import> blocks);

  /// Bytes of scratch for so many rows.
  std::size_t scratch_bytes(const kv_shape& shape, int heads, std::size_t rows) const;

  /// See backend::rope_write_kv.
  void rope_write_kv(const tensor& qkv, int heads, const head_norm& norm, const rope_rows& rope, sharded_cache& cache,
                     int layer, const batch& step);

  /// See backend::shaped_attention, and with `distances` distance_attention.
  void run(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores, const sharded_cache& cache,
           int layer, const batch& step, const distance_scores* distances = nullptr);

  /// See sparse_attention. Ranks divide the rows of a choice, and rows or heads of attention; a cache with layers of K
  /// alone is one for all of them.
  void choose(position_choice& to, const tensor& queries, const tensor& weights, int heads, const sharded_cache& cache,
              int layer, const batch& step);
  void attend_chosen(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores,
                     const position_choice& chosen, const sharded_cache& cache, int layer, const batch& step);

  /// See compressed_attention. Ranks divide rows, but for attention, of which they divide the heads; there is one cache.
  void make_entries(const entry_making& how, sharded_cache& cache, int from, int to, const batch& step);
  void choose_entries(position_choice& to, const tensor& queries, const tensor& weights, int heads, int rate,
                      const sharded_cache& cache, int layer, const batch& step);
  void attend_entries(const tensor& out, const tensor& q, int heads, const attention_scores& scores,
                      const entry_view& seen, const sharded_cache& cache, const batch& step);
  void undo_rotation(const tensor& out, const tensor& x, int heads, int pairs, const float* angles, const batch& step);

private:
  /// Calls f(rank, out, queries, heads, scores), all of its own heads, for each rank that has some.
  template <class F>
  void by_queries(const tensor& out, const tensor& q, int heads, int dim, const attention_scores& scores, const F& f);

  /// Calls f(rank, batch) with the rows of each rank, so that these see as many positions, at most `window` of each.
  template <class F>
  void by_rows(const batch& step, int window, const F& f);

  rank_team& ranks_;
  std::vector<std::int32_t> ends_; // of the op at hand
};

} // namespace troupe::kernels
