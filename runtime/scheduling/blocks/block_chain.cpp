#include "runtime/scheduling/blocks/block_chain.hpp"

#include "runtime/scheduling/blocks/block_pool.hpp"

#include <algorithm>

namespace troupe {

std::int32_t rotation_of(std::int32_t length, std::span<const std::int32_t> rope_borders) {
  return static_cast<std::int32_t>(std::ranges::count_if(rope_borders, [=](auto b) { return b < length; }));
}

prefix_salt chain_root(prefix_salt salt, std::int32_t rotation) {
  return salted(salt, rotation > 0 ? rotation_salt + static_cast<std::uint64_t>(rotation) : 0);
}

std::vector<std::uint64_t> block_chain(std::span<const token_id> tokens, prefix_salt root) {
  constexpr std::size_t block = kernels::block_tokens;
  std::vector<std::uint64_t> chain;
  chain.reserve(tokens.size() / block);
  for (auto hash = root; tokens.size() >= block; tokens = tokens.subspan(block))
    chain.push_back(hash = block_pool::content_hash(hash, tokens.first(block)));
  return chain;
}

} // namespace troupe
