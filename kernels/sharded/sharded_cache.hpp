// A paged KV cache divided among ranks: each has the K and V of its own KV heads, in memory of its own. Where there are
// fewer KV heads than ranks, one cache serves all of them.
#pragma once

#include "kernels/ops.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace troupe::kernels {

/// Neighbouring heads of a rank. Query heads stay with their KV head.
struct head_range {
  int first = 0, count = 0;
};

/// Range `rank` of `ranks` of so many heads, as even as can be.
constexpr head_range heads_of(int heads, int rank, int ranks) {
  const int first = heads * rank / ranks;
  return {first, heads * (rank + 1) / ranks - first};
}

/// Whether every layer has K and V of at least one head for each rank.
constexpr bool can_be_divided(const kv_shape& shape, std::size_t ranks) {
  for (int i = 0; i < shape.layers; ++i)
    if (const auto layer = shape.layer(i); !layer.values || static_cast<std::size_t>(layer.heads) < ranks)
      return false;
  return true;
}

class sharded_cache final : public kv_cache {
public:
  /// One for each rank, or one for all.
  std::vector<std::unique_ptr<kv_cache>> parts;

  bool divided() const { return parts.size() > 1; }

  /// The KV heads of part `index`.
  head_range kv_heads(std::size_t index) const { return part_of(shape.kv_heads, index); }
  head_range kv_heads(std::size_t index, int layer) const { return part_of(shape.layer(layer).heads, index); }

private:
  head_range part_of(int heads, std::size_t index) const {
    return heads_of(heads, static_cast<int>(index), static_cast<int>(parts.size()));
  }
};

/// The rows [first, end) of a step, as sequences of their own. Block tables stay those of the step.
void cut_rows(const batch& step, std::int32_t first, std::int32_t end, std::vector<sequence_rows>& cut);

/// The ends of at most `parts` ranges of a step's rows, which see about as many positions, at most `window` (0: all) by
/// each row. None is empty.
void divide_rows(const batch& step, int window, std::size_t parts, std::vector<std::int32_t>& ends);

/// Rows of a step.
std::int32_t rows_of(const batch& step);

} // namespace troupe::kernels
