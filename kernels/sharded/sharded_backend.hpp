// A backend made of ranks (tensor parallelism), CPU backends that share memory. Matrices are divided by columns,
// attention by heads, and norms, sums and other ops on rows by rows. Each rank computes whole outputs of full width.
// Nothing is summed across ranks, so all results have the bits of one rank.
#pragma once

#include "kernels/ops.hpp"
#include "kernels/sharded/column_ranges.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace troupe::kernels {

class thread_pool; // kernels/cpu/thread_pool.hpp

/// The threads that lead ranks, one for each.
struct rank_leaders {
  std::shared_ptr<thread_pool> pool = nullptr; // of backends that compute in turn; null: one of its own
  std::vector<std::vector<int>> cores = {};    // of each rank, that its leader stays on; empty: any
};

/// `ranks`: CPU backends of one instruction set that are led (cpu_options). A smaller unit, a multiple of 16, divides
/// smaller matrices, for tests.
std::unique_ptr<backend> make_sharded_backend(std::vector<std::unique_ptr<backend>> ranks,
                                              const rank_leaders& leaders = {}, std::size_t unit = column_unit);

} // namespace troupe::kernels
