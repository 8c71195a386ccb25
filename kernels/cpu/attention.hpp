// Attention on the CPU: writes K and V of a step's rows to the cache, then computes and merges the pieces of an
// attention_plan.
#pragma once

#include "kernels/cpu/attention_plan.hpp"
#include "kernels/cpu/attention_stretches.hpp"
#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/target.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "kernels/distance_attention.hpp"
#include "kernels/ops.hpp"

#include <cstddef>
#include <vector>

namespace troupe::kernels {

class cpu_attention {
public:
  cpu_attention(const target& kernels, thread_pool& pool);

  /// See backend::rope_write_kv.
  void rope_write_kv(const tensor& qkv, int heads, const head_norm& norm, const rope_rows& rope,
                     const layer_cache& cache, const batch& step);

  /// See backend::shaped_attention, and with `distances` distance_attention.
  void run(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores, const layer_cache& cache,
           const batch& step, const distance_scores* distances = nullptr);

  /// Bytes of V that were not read so far, as weights were 0.
  std::size_t unread_bytes() const;

private:
  struct row_chunk {
    const sequence_rows* sequence;
    int from, to;
  };

  struct call {
    attention_op op;
    attention_shape shape;
    const tensor* q = nullptr;
    const tensor* out = nullptr;
    const tensor* mixes = nullptr; // of distances; or null
    const std::int32_t* blocks = nullptr;
    int group = 0;
    int tile_queries = 0;
    std::size_t stride = 0; // between states
    float* slots = nullptr;
    const float* highest = nullptr; // [rows][heads], scores of the first partition; or null

    /// The index of head `head` of query i of a sequence in `highest`.
    std::size_t place(const sequence_rows& s, int i, int head) const {
      return static_cast<std::size_t>(s.first_row + i / group) * group * shape.kv_heads + head;
    }
    attention_state slot(std::size_t index) const { return {slots + index * stride, stride}; }
  };

  struct thread_scratch {
    std::vector<attention_tile> tiles;
    std::vector<table_reader> readers;        // of a tile
    std::vector<attention_stretch> stretches; // of all tiles
    scratch<float> states;
    std::size_t unread = 0; // bytes of V
  };

  /// Appends a run's queries to tiles, filling the last one first.
  void add_queries(const call& call, const query_run& run, int kv_head, int end_block,
                   std::vector<attention_tile>& tiles) const;

  /// Gives the tiles of a piece whose runs part their stretches.
  void divide(const call& call, const attention_piece& piece, thread_scratch& own) const;

  /// Finds the largest scores of the first partition for queries whose pieces begin behind it, where small weights are
  /// left out: most partitions of a long context hold none that counts beside them.
  void find_highest(call& call);

  /// Computes one piece for one KV head, all tiles for each partition, so that its K and V come from memory once.
  void attend(const call& call, const attention_piece& piece, int kv_head, thread_scratch& own) const;

  /// Merges the parts of a run for one KV head, in order, and finishes it.
  void merge(const call& call, const attention_merge& merged, int kv_head, std::vector<attention_tile>& tiles) const;

  const target& kernels_;
  thread_pool& pool_;
  attention_plan plan_;
  scratch<float> states_;
  std::vector<row_chunk> chunks_;
  std::vector<int> behind_first_;       // runs
  std::vector<float> highest_;          // [rows][heads]
  std::vector<thread_scratch> scratch_; // one per thread
};

} // namespace troupe::kernels
