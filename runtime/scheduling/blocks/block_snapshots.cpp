// The part of class block_manager that keeps snapshots of recurrent layers' states. A cached prefix is of use as far as
// its last snapshot. Snapshots are made at the end of what a sequence was opened for; where its prompt leaves what is
// cached, because conversations branch there; at fixed distances; and behind that one that moves on with the answer, so
// that the next turn of a conversation finds nearly all of it.
#include "runtime/scheduling/blocks/block_manager.hpp"

#include <algorithm>
#include <set>

namespace troupe {

namespace {

constexpr std::int32_t fixed_distance = 64 * kernels::block_tokens;

/// How far the moving snapshot may fall behind: a sixteenth of what it saves from being computed again.
std::int32_t moving_distance(std::int32_t position) {
  return std::max(kernels::block_tokens, position / 16 / kernels::block_tokens * kernels::block_tokens);
}

} // namespace

// How many of a chain's blocks can be shared: as far as the last snapshot.
std::size_t block_manager::reach(sequence& s, std::span<const token_id> tokens, std::size_t most,
                                 bool from_host) const {
  chain at{s.content, s.hash};
  std::size_t known = 0, reached = 0;
  for (; known < most; ++known) {
    const auto found = follow(at, tokens.subspan(known * block_size, block_size));
    if (!found || (found.block == none && !from_host))
      break;
    if (const auto slot = snapshots_->find(at.content)) {
      reached = known + 1;
      s.restored = *slot;
    }
  }
  s.branch = static_cast<std::int32_t>(known) * block_size;
  s.end = static_cast<std::int32_t>((tokens.size() - 1) / block_size) * block_size;
  s.saved = static_cast<std::int32_t>(reached) * block_size;
  return reached;
}

void block_manager::grant_saves(sequence& s, block_answer& a, std::int32_t guesses) {
  if (!prefix_cache_)
    return;
  const auto first = a.first_position, end = first + a.rows - guesses;
  std::set<std::int32_t> wanted;
  for (const auto position : {s.branch, s.end})
    if (position > first && position <= end)
      wanted.insert(position);
  for (auto position = (first / fixed_distance + 1) * fixed_distance; position <= end; position += fixed_distance)
    wanted.insert(position);
  const auto moving = end / block_size * block_size;
  const bool moves = moving > first && moving > s.end && moving - s.saved >= moving_distance(moving) &&
    wanted.insert(moving).second;
  for (const auto position : wanted) {
    const auto slot = snapshots_->take();
    if (!slot)
      return;
    s.saves.push_back({position, *slot, moves && position == moving});
    a.saves.push_back({position, *slot});
    s.saved = position;
  }
}

// Behind the block that was just committed.
void block_manager::attach_snapshot(sequence& s) {
  const auto position = s.committed_blocks * block_size;
  const auto found = std::ranges::find(s.saves, position, &planned_snapshot::position);
  if (found == s.saves.end())
    return;
  if (snapshots_->attach(s.content, found->slot) && found->rolling) {
    if (s.rolling != 0)
      snapshots_->forget_unused(s.rolling);
    s.rolling = s.content;
  }
  s.saves.erase(found);
}

// Drops the snapshots behind a position that will not be computed as it was planned.
void block_manager::drop_saves(sequence& s, std::int32_t length) {
  std::erase_if(s.saves, [&](const planned_snapshot& save) {
    if (save.position <= length)
      return false;
    snapshots_->give_back(save.slot);
    s.saved = std::min(s.saved, length);
    return true;
  });
}

} // namespace troupe
