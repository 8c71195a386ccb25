// Arithmetic of KV blocks.
#pragma once

#include "kernels/ops.hpp"

#include <concepts>

namespace troupe {

/// Blocks that hold so many tokens.
template <std::integral Count>
constexpr Count blocks_for(Count tokens) {
  return (tokens + Count(kernels::block_tokens) - 1) / Count(kernels::block_tokens);
}

} // namespace troupe
