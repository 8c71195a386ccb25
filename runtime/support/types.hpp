// Small types shared by all of the runtime.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace troupe {

using token_id = std::int32_t;

/// One sequence of a request: requests with n > 1 own several, numbered from 0.
struct sequence_id {
  std::uint64_t request = 0;
  std::uint32_t index = 0;
  auto operator<=>(const sequence_id&) const = default;
};

/// Converts sizes and indices that are kept as int.
constexpr std::size_t as_size(int n) { return static_cast<std::size_t>(n); }

} // namespace troupe
