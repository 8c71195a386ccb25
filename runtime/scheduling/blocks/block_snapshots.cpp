#include "runtime/scheduling/blocks/block_snapshots.hpp"

#include <algorithm>
#include <set>

namespace troupe {

namespace {

constexpr auto block_size = kernels::block_tokens;
constexpr std::int32_t fixed_distance = 64 * kernels::block_tokens;

} // namespace

std::size_t sequence_snapshots::reach(const block_pool& pool, block_pool::chain at, std::span<const token_id> tokens,
                                      std::size_t most, bool from_host) {
  std::size_t known = 0, reached = 0;
  for (; known < most; ++known) {
    const auto found = pool.follow(at, tokens.subspan(known * block_size, block_size));
    if (!found || (found.slot && !from_host))
      break;
    if (const auto slot = pool.snapshots->find(at.content)) {
      reached = known + 1;
      restored_ = *slot;
    }
  }
  branch_ = static_cast<std::int32_t>(known) * block_size;
  end_ = static_cast<std::int32_t>((tokens.size() - 1) / block_size) * block_size;
  saved_ = static_cast<std::int32_t>(reached) * block_size;
  return reached;
}

std::int32_t sequence_snapshots::use(state_snapshots& slots) const {
  slots.use(restored_);
  return restored_;
}

void sequence_snapshots::grant(state_snapshots& slots, block_answer& a, std::int32_t guesses) {
  const auto first = a.first_position, end = first + a.rows - guesses;
  std::set<std::int32_t> wanted;
  for (const auto position : {branch_, end_ - block_size, end_})
    if (position > first && position <= end)
      wanted.insert(position);
  for (auto position = (first / fixed_distance + 1) * fixed_distance; position <= end; position += fixed_distance)
    wanted.insert(position);
  const auto moving = end / block_size * block_size;
  const bool moves = moving > first && moving > end_ && moving > saved_ && wanted.insert(moving).second;
  for (const auto position : wanted) {
    const auto slot = slots.take();
    if (!slot)
      return;
    planned_.push_back({position, *slot, moves && position == moving});
    a.saves.push_back({position, *slot});
    saved_ = position;
  }
}

bool sequence_snapshots::attach(state_snapshots& slots, std::uint64_t content, std::int32_t position) {
  const auto found = std::ranges::find(planned_, position, &planned::position);
  if (found == planned_.end())
    return false;
  const auto its = *found;
  planned_.erase(found);
  if (!slots.attach(content, its.slot))
    return false;
  if (!its.rolling)
    return true;
  if (rolling_.content != 0)
    slots.forget_unused(rolling_.content);
  rolling_ = {content, position / block_size - 1};
  return false;
}

void sequence_snapshots::drop(state_snapshots& slots, std::int32_t length) {
  std::erase_if(planned_, [&](const planned& save) {
    if (save.position <= length)
      return false;
    slots.give_back(save.slot);
    saved_ = std::min(saved_, length);
    return true;
  });
}

void sequence_snapshots::fork() {
  planned_.clear();
  rolling_ = {};
}

} // namespace troupe
