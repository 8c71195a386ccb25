// What a sequence's blocks are known by in the prefix cache, for those who do not own it.
#pragma once

#include "runtime/scheduling/prefix_salt.hpp"
#include "runtime/support/types.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

/// The number of borders (scheduler_limits::rope_borders) that a sequence of so many tokens is beyond.
std::int32_t rotation_of(std::int32_t length, std::span<const std::int32_t> rope_borders);

/// The root of the chain of blocks of a sequence with that salt.
prefix_salt chain_root(prefix_salt salt, std::int32_t rotation);

/// The hashes of the full blocks of `tokens`, each of its block and all before it.
std::vector<std::uint64_t> block_chain(std::span<const token_id> tokens, prefix_salt root);

} // namespace troupe
