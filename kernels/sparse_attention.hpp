// Attention over some positions of the context, which a learned indexer chooses for each row (DeepSeek V3.2: small heads
// with keys of their own, in a layer of the cache that has K alone). An optional interface of backends, beside `backend`.
#pragma once

#include "kernels/ops.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe::kernels {

/// Neighbouring positions that are chosen together, by a key that is made of theirs: their mean, RMS-normed, and rotated
/// as the first of them. The cache has the positions' own keys, neither normed nor rotated.
struct key_groups {
  int size = 1;                // positions, a divisor of block_tokens. 1: none, keys are scored as the cache has them
  const float* norm = nullptr; // [dim], in device memory
  float eps = 0;
  rope_rows rope = {};
};

/// Neighbouring positions that each KV head chooses for itself: the score of a block is the highest product of that head's
/// query with one of its keys. The last ones that a row sees are chosen in any case.
struct key_blocks {
  int size = 0; // positions; 0: there are no blocks
  int last = 1; // at least 1
};

/// What the rows of a step attend to, in host memory or a GPU's. A row that sees at most `most` positions attends to all
/// of them. With groups, others attend to whole ones, and to all positions behind the last whole one. With blocks, `most`
/// is a multiple of their size.
struct position_choice {
  int most = 0;
  key_groups groups;
  key_blocks blocks;
  int heads = 1;                       // of K and V, which choose for themselves; 1: all have one choice
  std::vector<std::int32_t> positions; // [rows, heads, most], ascending; of rows that choose
  buffer on_device;                    // the same, of a backend that keeps it there, and leaves `positions` as they are
  std::size_t device_bytes = 0;        // of it

  /// Room for the choices of `rows` rows.
  void reset(std::size_t rows, int top, const key_groups& by = {}) {
    most = top;
    groups = by;
    blocks = {};
    heads = 1;
    positions.resize(rows * static_cast<std::size_t>(top));
  }
  void reset(std::size_t rows, int top, const key_blocks& by, int choices) {
    reset(rows * static_cast<std::size_t>(choices), top);
    blocks = by;
    heads = choices;
  }
  bool chooses(std::int32_t position) const { return position >= most; }
  /// How many positions a row that chooses attends to: `most`, less what the group or block that has begun lacks.
  int count(std::int32_t position) const {
    if (blocks.size > 0)
      return most - blocks.size + position % blocks.size + 1;
    return most + 1 - groups.size + (position + 1) % groups.size;
  }
  std::int32_t* of(std::size_t row, int head = 0) { return positions.data() + place(row, head); }
  const std::int32_t* of(std::size_t row, int head = 0) const { return positions.data() + place(row, head); }

private:
  std::size_t place(std::size_t row, int head) const {
    return (row * static_cast<std::size_t>(heads) + static_cast<std::size_t>(heads > 1 ? head : 0)) *
      static_cast<std::size_t>(most);
  }
};

class sparse_attention {
public:
  virtual ~sparse_attention() = default;

  /// Chooses for each row of the step that sees more than `to.most` positions those of the highest scores, ties by the
  /// earlier position. A score is the sum over `heads` heads, in order, of weight * max(query · key, 0). `queries` f32
  /// [rows, heads * dim], rotated; `weights` f32 [rows, heads]; the keys are in the cache's `layer`, one for all heads,
  /// also those of the step's rows (backend::rope_write_kv, whose qkv has no values for a layer of K alone). With groups,
  /// these have the scores, of which a row sees those that are whole. With blocks, head i of the queries is that of KV
  /// head i, and there are no weights.
  virtual void choose_positions(position_choice& to, const tensor& queries, const tensor& weights, int heads,
                                const kv_cache& cache, int layer, const batch& step) = 0;

  /// backend::shaped_attention of each row over its chosen positions. Partitions are counted among these: 256 after
  /// 256 of them. Scores have no window, chunk, slopes or threshold.
  virtual void attend_chosen(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores,
                             const position_choice& chosen, const kv_cache& cache, int layer, const batch& step) = 0;
};

/// The rows of a step that attend to all that they see, as sequences of their own.
void rows_before_choice(const batch& step, int most, std::vector<sequence_rows>& to);

} // namespace troupe::kernels
