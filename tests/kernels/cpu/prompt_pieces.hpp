// What a prompt's attention loads on a CPU, by its plan.
#pragma once

#include "kernels/cpu/attention_plan.hpp"
#include "tests/kernels/attention_traffic.hpp"

#include <algorithm>
#include <vector>

namespace troupe::kernels::testing {

/// Tiles of a piece read a partition from caches after the first.
inline tile_counts on_cpu(const prompt_shape& s, int tile_queries, int threads) {
  const sequence_rows prompt{0, s.tokens, 0, 0};
  const std::vector<std::int32_t> table(std::size_t(s.tokens) / block_tokens, 0);
  const batch step{{&prompt, 1}, table};
  attention_plan plan(threads);
  plan.make({16, 1, 0, tile_queries}, step);
  tile_counts counts;
  for (const auto& piece : plan.pieces())
    for (int p = piece.first_partition; p < piece.first_partition + piece.partitions; ++p) {
      int most = 0;
      for (const int run : plan.runs_of(piece)) {
        const int seen = plan.blocks_seen(run, p) * block_tokens;
        most = std::max(most, seen);
        counts.scores += double(plan.run(run).count) * seen;
      }
      counts.kv += most;
      counts.rows += p == piece.first_partition && piece.first_partition == 0 ? piece.queries : 0;
    }
  return counts;
}

} // namespace troupe::kernels::testing
