// Attention whose scores have a learned part that depends on how far behind a key is, in place of rotations: each query
// mixes some rows of numbers, which have one for each distance below an extent. An optional interface of backends, beside
// ops.hpp.
#pragma once

#include "kernels/ops.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace troupe::kernels {

/// Zeros on each side of a table's rows: as much as kernels may read there.
inline constexpr int distance_padding = 16;

/// score(query, key) += sum over i of mixes[query][i] * numbers[i][distance], where the distance is below `extent`;
/// beyond it, nothing. It is not scaled.
struct distance_scores {
  tensor mixes = {};            // [rows, heads * width], f32
  const float* table = nullptr; // see distance_table; in device memory
  int width = 0, extent = 0;

  std::size_t stride() const { return static_cast<std::size_t>(extent + 2 * distance_padding); } // of the table
};

/// `numbers` [width, extent], as kernels read them: the farthest distance first, so that tokens ascend; with zeros around
/// each row.
inline std::vector<float> distance_table(std::span<const float> numbers, int width, int extent) {
  const auto stride = distance_scores{.width = width, .extent = extent}.stride(), count = std::size_t(extent);
  std::vector<float> table(std::size_t(width) * stride);
  for (std::size_t i = 0; i < std::size_t(width); ++i)
    for (std::size_t d = 0; d < count; ++d)
      table[i * stride + distance_padding + count - 1 - d] = numbers[i * count + d];
  return table;
}

class distance_attention {
public:
  virtual ~distance_attention() = default;

  /// backend::shaped_attention with that part of the scores, without caps and slopes.
  virtual void attend_by_distance(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores,
                                  const distance_scores& distances, const kv_cache& cache, int layer,
                                  const batch& step) = 0;
};

} // namespace troupe::kernels
