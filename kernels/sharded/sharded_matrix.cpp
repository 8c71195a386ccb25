#include "kernels/sharded/sharded_matrix.hpp"

#include <algorithm>

namespace troupe::kernels {

std::vector<low_rank_pair> cut_pairs(std::span<const low_rank_pair> pairs, std::size_t outputs, column_range range,
                                     bool gated) {
  std::vector<low_rank_pair> cut;
  for (std::size_t half = 0; half < (gated ? 2u : 1u); ++half) {
    const auto first = half * (outputs / 2) + range.first, end = first + range.count;
    for (const auto& p : pairs) {
      const auto from = std::max(first, p.first_output), to = std::min(end, p.first_output + p.outputs);
      if (from < to)
        cut.push_back(
          {half * range.count + from - first, to - from, p.rank, p.a, p.b + (from - p.first_output) * p.rank});
    }
  }
  return cut;
}

} // namespace troupe::kernels
