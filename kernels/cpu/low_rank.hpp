// Low-rank pairs on the CPU. The first product is an op of its own. It reads rows where they are and weights without
// padding: outputs are few, so vector lanes divide the inputs and are summed as a tree at the end. The second product
// is part of how a linear layer stores its sums: it costs a few multiplications per output, and nothing is written
// twice.
#pragma once

#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/target.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "kernels/low_rank.hpp"

#include <vector>

namespace troupe::kernels {

/// Immutable. Layouts: see target.hpp.
class packed_low_rank : public matrix {
public:
  dtype compute = dtype::f32;
  std::size_t ranks = 0; // of all pairs, padded
  std::vector<low_rank_block> blocks;
  buffer a, b;
};

std::unique_ptr<const matrix> pack_low_rank_pairs(std::span<const low_rank_pair> pairs, std::size_t inputs,
                                                  std::size_t outputs, dtype compute);

class cpu_low_rank {
public:
  cpu_low_rank(const target& kernels, thread_pool& pool) : kernels_(kernels), pool_(pool) {}

  /// Computes the first products of all groups. Returns what is to be added to each row of a product with `in`, until
  /// the next call; null if there are no groups.
  const row_addend* prepare(const tensor& in, std::size_t outputs, std::span<const row_group> groups);

private:
  /// Tiles of one group's ranks, for some of its rows.
  struct task {
    low_rank_op op;
    std::size_t first_tile = 0, tiles = 0;
  };

  const target& kernels_;
  thread_pool& pool_;
  // State of the current call. Members, so that steps allocate nothing.
  scratch<std::uint32_t> low_;
  std::vector<row_addend> addends_;
  std::vector<task> tasks_;
};

} // namespace troupe::kernels
