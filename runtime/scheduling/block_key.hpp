// The name of a block of K and V outside of the process that computed it. A plain value.
#pragma once

#include <compare>
#include <cstdint>

namespace troupe {

/// Names a block by all that its K and V depend on: the numerics, the salt, and every token up to its end. The same in
/// all processes that share a secret; unlike ids of content, which are exact but of one process.
struct block_key {
  std::uint64_t high = 0, low = 0;

  friend auto operator<=>(const block_key&, const block_key&) = default;
};

} // namespace troupe
