#include "runtime/scheduling/planning/slot_shares.hpp"

#include <algorithm>
#include <set>
#include <string_view>

namespace troupe {

sequence_id slot_shares::first_that_runs(const sequence_group& g) const {
  return *std::ranges::find_if(g.members, [this](sequence_id id) { return table_.at(id).running(); });
}

std::int32_t slot_shares::held_by(const scheduled_sequence& s) const {
  auto slots = static_cast<std::int32_t>(1 + s.sibling_slots.size());
  if (s.grouped())
    if (const auto& g = table_.group_of(s); first_that_runs(g) == s.id)
      slots += static_cast<std::int32_t>(g.spare_slots.size());
  return slots;
}

slots_by_client slot_shares::held() const {
  slots_by_client held;
  for (auto& s : table_.running())
    held[s.asked->client] += held_by(s);
  return held;
}

std::int32_t slot_shares::equal() const {
  const auto& waiting = table_.waiting().by_client();
  std::set<std::string_view> others;
  for (auto& s : table_.running())
    if (!waiting.contains(s.asked->client))
      others.insert(s.asked->client);
  return limits_.max_sequences / std::max(1, static_cast<std::int32_t>(waiting.size() + others.size()));
}

std::int32_t slot_shares::most_for(const scheduled_sequence& s, std::int32_t rows) const {
  std::set<std::string_view> others;
  for (const auto& each : table_.running())
    if (each.asked->client != s.asked->client && each.priority >= s.priority && !each.gives_way() && !each.paused())
      others.insert(each.asked->client);
  if (others.empty())
    return limits_.max_sequences;
  return std::max(equal(), rows / std::min(static_cast<std::int32_t>(others.size()) + 1, most_parts));
}

// Other clients keep what they need to start with, and share the rest with this one.
std::int32_t slot_shares::for_siblings(const scheduled_sequence& s, std::int32_t promised) const {
  if (s.siblings == 0)
    return 0;
  auto free = table_.free_slots() - promised;
  const auto held = this->held();
  bool alone = true;
  for (auto& [client, places] : table_.waiting().by_client())
    if (client != s.asked->client) {
      alone = false;
      free -= held.contains(client) ? 0 : 1;
    }
  const auto share = alone && held.size() <= 1 ? limits_.max_sequences : equal() - held.at(s.asked->client);
  return std::clamp(std::min(free, share), 0, s.siblings);
}

} // namespace troupe
