#include "runtime/scheduling/blocks/sequence_blocks.hpp"

#include "runtime/support/kv_blocks.hpp"

#include <algorithm>
#include <cassert>

namespace troupe {

void sequence_blocks::begin(const block_pool& pool, prefix_salt salt) {
  content = hash = root = salt;
  if (pool.kept)
    key = pool.kept->keys.root(salt);
}

std::vector<host_hit> sequence_blocks::open(block_pool& pool, std::span<const token_id> tokens, std::int32_t most,
                                            bool from_host) {
  std::vector<host_hit> hits;
  if (tokens.empty())
    return hits;
  constexpr std::size_t block = kernels::block_tokens;
  block_pool::chain at{root, root};
  // The last token is always recomputed, for its logits.
  auto usable = std::min(tokens.size() - 1, static_cast<std::size_t>(most)) / block;
  if (pool.snapshots)
    usable = snapshots.reach(pool, at, tokens, usable, from_host);
  for (std::size_t i = 0; i < usable; ++i) {
    const auto chunk = tokens.subspan(i * block, block);
    const auto found = pool.follow(at, chunk);
    if (!found || (found.slot && !from_host))
      break;
    if (found.slot) {
      pool.hold(*found.slot);
      hits.push_back({table.size(), *found.slot});
    } else {
      pool.reference(found.block);
    }
    table.push_back(found.block);
    content = at.content;
    hash = at.hash;
    if (pool.kept)
      key = pool.kept->keys.next(key, chunk);
    ++committed_blocks;
    length += kernels::block_tokens;
  }
  return hits;
}

void sequence_blocks::commit(block_pool& pool, std::span<const token_id> tokens) {
  for (const auto t : tokens) {
    tail.push_back(t);
    if (tail.size() == kernels::block_tokens)
      index_full_block(pool);
  }
}

void sequence_blocks::index_full_block(block_pool& pool) {
  auto& own = table[static_cast<std::size_t>(committed_blocks)];
  const auto its_hash = pool.hash(hash, tail);
  const auto known = pool.find(content, its_hash, tail);
  if (pool.kept)
    key = pool.kept->keys.next(key, tail);
  if (known == block_pool::none) {
    block_content fresh{0, content, its_hash, {}, key, committed_blocks};
    std::ranges::copy(tail, fresh.tokens.begin());
    pool.put(own, fresh, pool.kept.has_value());
  } else if (known != own) {
    // Another sequence computed the same content meanwhile, to the same bits: keep one of the two.
    pool.reference(known);
    pool.unreference(own);
    own = known;
  }
  content = pool.content(own).id;
  hash = its_hash;
  ++committed_blocks;
  tail.clear();
  if (pool.snapshots && snapshots.attach(*pool.snapshots, content, committed_blocks * kernels::block_tokens))
    pool.keep_state(pool.content(own));
}

void sequence_blocks::shorten(block_pool& pool, std::int32_t to) {
  if (const auto blocks = to / kernels::block_tokens; blocks < committed_blocks) {
    committed_blocks = blocks;
    tail.clear();
    if (blocks > 0) {
      const auto& last = pool.content(table[static_cast<std::size_t>(blocks) - 1]);
      content = last.id;
      hash = last.hash;
      key = last.key;
    } else {
      begin(pool, root);
    }
  }
  truncate(pool, to);
}

void sequence_blocks::truncate(block_pool& pool, std::int32_t to) {
  assert(to <= length && to / kernels::block_tokens >= committed_blocks);
  length = to;
  drop_snapshots(pool, to);
  for (; static_cast<std::int32_t>(table.size()) > blocks_for(to); table.pop_back())
    pool.unreference(table.back());
}

void sequence_blocks::share(block_pool& pool) {
  for (const auto b : table)
    pool.reference(b);
  snapshots.fork();
}

void sequence_blocks::release(block_pool& pool) {
  if (const auto last = snapshots.rolling(); last.content != 0 && last.place < std::ssize(table) &&
      pool.content(table[static_cast<std::size_t>(last.place)]).id == last.content)
    pool.keep_state(pool.content(table[static_cast<std::size_t>(last.place)]));
  // Last block first: the end of a chain is useless without its beginning, so it is evicted first.
  for (auto b = table.rbegin(); b != table.rend(); ++b)
    if (*b != block_pool::none) // still in host memory
      pool.unreference(*b);
  drop_snapshots(pool, 0);
}

void sequence_blocks::drop_snapshots(block_pool& pool, std::int32_t from) {
  if (pool.snapshots)
    snapshots.drop(*pool.snapshots, from);
}

} // namespace troupe
