// Decides from sizes alone which weights stay in memory if not all fit, and what the others cost each token.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace troupe {

/// The packed matrices of a layer, or of the head.
struct unit_bytes {
  std::size_t dense = 0; // that every token is multiplied with
  std::vector<std::size_t> experts = {};
};

/// More memory than any weights can use.
inline constexpr std::size_t all_weights = std::numeric_limits<std::size_t>::max();

struct weight_placement {
  std::vector<bool> kept = {};   // units whose dense matrices stay in memory
  std::size_t all = 0;           // bytes of all matrices
  std::size_t kept_bytes = 0;    // of dense matrices that stay
  std::size_t expert_bytes = 0;  // of experts that may stay
  std::size_t passing_bytes = 0; // of memory for what is read and dropped
  std::size_t read_bytes = 0;    // that a token reads from the disk, experts being chosen equally often

  bool fits() const { return kept_bytes + expert_bytes == all; }

  /// Bytes of memory in use.
  std::size_t memory() const { return kept_bytes + expert_bytes + passing_bytes; }
};

/// Places weights in `budget` bytes of memory: all if they fit; else dense matrices before experts, and streamed units
/// at equal distances, so that one is read while those between are computed. `chosen`: experts per token. What passes
/// through memory may exceed a budget that is too small for it.
weight_placement place_weights(const std::vector<unit_bytes>& units, int chosen, std::size_t budget);

/// "of which 17.0 GiB stay in memory; each token reads 12.6 GiB from disk".
std::string described(const weight_placement& placement);

} // namespace troupe
