// Attention over chosen positions on the CPU: scores of an indexer, the choice, and attention over K and V that are
// brought together, partition by partition, in blocks of a thread's own. Beside cpu_attention, which computes the rows
// that see too few positions to choose. Attention over compressed keys is computed in the same way.
#pragma once

#include "kernels/compressed_attention.hpp"
#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/target.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "kernels/planned_steps.hpp"
#include "kernels/sparse_attention.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::kernels {

class chosen_attention {
public:
  chosen_attention(const target& kernels, thread_pool& pool);

  /// See sparse_attention. With a `rate`, every so many positions have a key: see compressed_attention.
  void choose(position_choice& to, const tensor& queries, const tensor& weights, int heads, const layer_cache& keys,
              const batch& step, int rate = 1);

  /// The rows that choose; the others are not touched.
  void attend(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores,
              const position_choice& chosen, const layer_cache& cache, const batch& step);

  /// See compressed_attention: all rows. `entries`: null if there are none.
  void attend_entries(const tensor& out, const tensor& q, int heads, const attention_scores& scores,
                      const entry_view& seen, const layer_cache& tokens, const layer_cache* entries, const batch& step);

  /// Bytes of scratch that calls for such steps take, at most.
  std::size_t scratch_bytes(const planned_steps& steps) const;

  /// Bytes of scratch that calls have taken so far.
  std::size_t held_bytes() const;

private:
  struct choosing_row {
    const sequence_rows* sequence;
    std::int32_t row;      // of the step
    std::int32_t position; // of the sequence
  };
  struct row_part {
    std::size_t row; // of the rows at hand
    int partition;
  };
  /// The heads that share a KV head, of one row, and what they see: tokens from a first one on, then positions that are
  /// chosen, or every `rate`-th.
  struct head_group {
    const choosing_row* row;
    int kv_head;
    int first_token = 0, tokens = 0;
    const std::int32_t* chosen = nullptr;
    int others = 0;

    int count() const { return tokens + others; }
  };
  struct call {
    attention_op op;
    const tensor* q = nullptr;
    const tensor* out = nullptr;
    const std::int32_t* blocks = nullptr; // of the step
    layer_cache others;                   // in which chosen positions are
    int grouped = 1; // positions for each key that is scored; if more than 1, the keys are those of `pool_keys`
    int rate = 1;    // of positions that have keys, and of those that are seen, if they are not listed
    int group = 0;
    int tile_queries = 0;
    std::size_t stride = 0;
  };
  struct thread_scratch {
    std::vector<std::uint64_t> keys; // of positions, the better the higher
    scratch<char> gathered;          // K and V of a partition
    scratch<float> states;
    scratch<float> part;
    scratch<float> key;
  };

  void find_rows(const batch& step, int first_position);
  call call_of(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores,
               const layer_cache& cache, const batch& step) const;
  /// Chooses for rows [first, end) of those that choose.
  void choose_rows(position_choice& to, const call& call, const tensor& weights, int heads, std::size_t first,
                   std::size_t end);
  /// Blocks for all rows that choose, by each of `heads` heads.
  void choose_blocks(position_choice& to, const call& call, int heads);
  /// products = those of one head's query with the keys of a partition.
  void multiply(const call& call, const choosing_row& row, int head, int partition, float* products,
                thread_scratch& own) const;
  /// Keys of the first `count` groups of a sequence, one after another, f32.
  layer_cache pool_keys(const layer_cache& from, const std::int32_t* blocks, const sequence_rows& of, int count,
                        const key_groups& how);
  /// Attention of `groups_`.
  void attend(const call& call);
  void score(const call& call, const choosing_row& row, const float* weights, int heads, int partition,
             float* sums) const;
  void choose_best(std::int32_t* to, int best, const float* scores, int count, int rate,
                   std::vector<std::uint64_t>& keys) const;
  /// Brings the chosen positions of a partition together; returns the cache that has them.
  layer_cache gather(const call& call, const head_group& of, int partition, thread_scratch& own) const;
  /// states = attention of a group's heads over a partition.
  void attend_part(const call& call, const head_group& of, int partition, float* states, thread_scratch& own) const;
  template <class F>
  void for_tiles(const call& call, const head_group& of, int partition, const F& f) const;

  const target& kernels_;
  thread_pool& pool_;
  std::vector<choosing_row> rows_;
  std::vector<row_part> parts_;
  std::vector<head_group> groups_;
  scratch<float> scores_;
  scratch<float> slots_;
  scratch<char> pooled_;
  std::vector<std::int32_t> in_order_; // blocks of `pooled_`
  std::vector<thread_scratch> scratch_;
};

} // namespace troupe::kernels
