// Weights divided by columns: a shard for each rank, packed by that rank's backend. Immutable, and shared by all
// sharded backends of as many ranks.
#pragma once

#include "kernels/low_rank.hpp"
#include "kernels/sharded/column_ranges.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace troupe::kernels {

class sharded_matrix final : public matrix {
public:
  /// Null for ranks without columns.
  std::vector<std::unique_ptr<const matrix>> shards;
  std::vector<column_range> columns;
  bool gated = false; // gate and up; `columns` are those of one
};

/// Low-rank pairs, cut like the matrix whose products they are added to. A rank whose outputs get nothing has null.
class sharded_low_rank final : public matrix {
public:
  std::vector<std::unique_ptr<const matrix>> shards;
};

/// The pairs, or parts of them, that give a rank's outputs, which count from 0. `gated`: of `outputs`, half are gate's
/// and half up's, and so are the rank's, of which `range` counts one half.
std::vector<low_rank_pair> cut_pairs(std::span<const low_rank_pair> pairs, std::size_t outputs, column_range range,
                                     bool gated);

} // namespace troupe::kernels
