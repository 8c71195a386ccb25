// How many blocks of the paged KV cache hold so many tokens.
#pragma once

#include "kernels/ops.hpp"

#include <concepts>

namespace troupe {

template <std::integral T>
constexpr T blocks_for(T tokens) {
  return (tokens + T{kernels::block_tokens} - 1) / T{kernels::block_tokens};
}

} // namespace troupe
