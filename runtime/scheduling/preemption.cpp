// Who holds slots, and who gives them or their blocks up: shares of clients, victims, sequences that start anew.
#include "runtime/scheduling/scheduler.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace troupe {

// -- slots ------------------------------------------------------------------------------------------------------------

std::int32_t scheduler::slots_of(const sequence& s) const {
  auto slots = static_cast<std::int32_t>(1 + s.sibling_slots.size());
  if (s.grouped())
    if (const auto& g = groups_.at(s.id.request); g.members.front() == s.id)
      slots += static_cast<std::int32_t>(g.spare_slots.size());
  return slots;
}

slots_by_client scheduler::held_slots() const {
  slots_by_client held;
  for (auto& [_, s] : running_)
    held[s->client] += slots_of(*s);
  return held;
}

// Of the slots, for each client that runs or waits.
std::int32_t scheduler::equal_share() const {
  std::set<std::string> clients;
  for (auto& [_, s] : running_)
    clients.insert(s->client);
  for (auto& [client, places] : waiting_.by_client())
    clients.insert(client);
  return limits_.max_sequences / std::max(1, static_cast<std::int32_t>(clients.size()));
}

// How many of its siblings get a slot together with a sequence that has just got its own. Others keep what they need
// to start with, and share the rest with this client. A group has all or none.
std::int32_t scheduler::sibling_slots(const sequence& s) const {
  if (s.siblings == 0 || s.grouped())
    return s.siblings;
  auto free = static_cast<std::int32_t>(free_slots_.size()) - slots_promised_;
  const auto held = held_slots();
  bool alone = true;
  for (auto& [client, places] : waiting_.by_client())
    if (client != s.client) {
      alone = false;
      free -= held.contains(client) ? 0 : 1;
    }
  const auto share = alone && held.size() <= 1 ? limits_.max_sequences : equal_share() - held.at(s.client);
  return std::clamp(std::min(free, share), 0, s.siblings);
}

// -- who gives way ----------------------------------------------------------------------------------------------------

bool scheduler::any_granted(const group& g) const {
  return std::ranges::any_of(g.members, [this](sequence_id id) { return granted_.contains(id); });
}

// One that gives way if there is one, else one of the lowest priority: of the client that holds most slots, if that is
// more than an equal share, the youngest. Never one that has rows in this step.
scheduler::sequence* scheduler::victim() {
  const auto held = held_slots();
  const auto share = held.size() > 1 ? equal_share() : limits_.max_sequences;
  const auto loses = [&](const sequence& s) { // before others
    const auto slots = held.at(s.client);
    return std::tuple(s.gives_way(), -s.priority, slots > share ? slots : 0);
  };
  sequence* last = nullptr;
  for (auto& [_, s] : running_) {
    if (granted_.contains(s->id) || (s->grouped() && any_granted(groups_.at(s->id.request))))
      continue;
    if (!last || loses(*s) >= loses(*last))
      last = s;
  }
  return last;
}

void scheduler::preempt(sequence& s, block_request& request, bool fits) {
  if (s.grouped())
    return preempt_group(s.id.request, request, fits);
  suspend(s, request);
  ++counters_.preemptions;
}

// Back to the queue, to be computed again from the transcript.
void scheduler::suspend(sequence& s, block_request& request) {
  leave(s, request);
  enqueue(s);
}

// Those that have grown beyond a border. Their blocks go back with this request, ahead of what it demands.
void scheduler::suspend_crossing(block_request& request) {
  std::vector<sequence*> all;
  for (auto& [_, s] : running_)
    if (crosses(*s))
      all.push_back(s);
  for (auto* s : all)
    if (s->grouped())
      suspend(groups_.at(s->id.request), request);
    else
      suspend(*s, request);
}

void scheduler::suspend(group& g, block_request& request) {
  for (const auto id : g.members)
    if (auto& s = sequences_.at(id); s.running())
      suspend(s, request);
  free_slots_.insert(free_slots_.end(), g.spare_slots.begin(), g.spare_slots.end());
  g.spare_slots.clear();
  reserve_slots(g);
}

// A group that is alone and still lacks blocks could never go on; nor the oldest one, if it loses its blocks again and
// again before its next step.
void scheduler::preempt_group(std::uint64_t id, block_request& request, bool fits) {
  const auto member = [id](const auto& entry) { return entry.second->id.request == id; };
  const bool alone = std::ranges::all_of(running_, member);
  auto& g = groups_.at(id);
  constexpr int most_losses = 16;
  if (!fits && member(*running_.begin()))
    ++g.losses;
  fits = fits || (!(alone && later_.releases.empty() && request.releases.empty()) && g.losses < most_losses);
  if (!fits && g.members.size() > 1) {
    failed_.push_back(
      {id,
       {errc::bad_request,
        sequences_.at(g.members.front()).params->paired()
          ? "prompt, negative prompt and answer need more blocks than the KV cache has: lower `max_tokens`"
          : "the beams need more blocks than the KV cache has: lower `num_beams` or `max_tokens`",
        sequences_.at(g.members.front()).params->paired() ? "max_tokens" : "num_beams"}});
    return cancel(id);
  }
  counters_.preemptions += static_cast<std::uint64_t>(
    std::ranges::count_if(g.members, [this](auto each) { return sequences_.at(each).running(); }));
  suspend(g, request);
}

// When a group is admitted again, its first member brings the slots of sequences that may be forked.
void scheduler::reserve_slots(group& g) {
  for (const auto id : g.members)
    sequences_.at(id).siblings = 0;
  if (auto& first = sequences_.at(g.members.front()); !first.running())
    first.siblings = first.params->width() - static_cast<std::int32_t>(g.members.size());
}

scheduler::sequence* scheduler::first_waiting(const slots_by_client& held) {
  fair_queue::turns turns(waiting_, held);
  while (const auto id = turns.next())
    if (auto& s = sequences_.at(*id); admissible(s))
      return &s;
  return nullptr;
}

// Who gives a slot to a client that has none: the youngest sequence of the client that holds most, if that is more than an
// equal share. A group loses all of its slots at once, so it has some steps between two losses.
scheduler::sequence* scheduler::fair_victim(const sequence& first, const slots_by_client& held) {
  constexpr int fewest_judged = 16;
  if (held.contains(first.client))
    return nullptr;
  const auto share = std::max(1, equal_share());
  sequence* found = nullptr;
  for (auto& [_, s] : running_) {
    const auto slots = held.at(s->client);
    if (slots <= share || s->priority > first.priority ||
        (s->grouped() && groups_.at(s->id.request).judged < fewest_judged))
      continue;
    if (!found || slots >= held.at(found->client))
      found = s;
  }
  return found;
}

// Preempts paused or less important sequences for the first waiting one, if it lacks slots or was refused blocks, or one
// of a client that has more than others.
void scheduler::preempt_for_waiting(block_request& request) {
  if (waiting_.empty())
    return;
  const auto held = held_slots();
  const auto* first = first_waiting(held);
  if (!first)
    return;
  const auto wanted = static_cast<std::size_t>(first->slots_needed());
  auto slots = free_slots_.size();
  std::size_t yielding = 0;
  for (auto& [_, s] : running_)
    if (s->gives_way() || s->priority < first->priority) {
      slots += static_cast<std::size_t>(slots_of(*s));
      ++yielding;
    }
  if (slots >= wanted && yielding > 0) {
    if (starved_)
      preempt(*victim(), request, true);
    while (free_slots_.size() < wanted)
      preempt(*victim(), request, true);
  } else if (free_slots_.size() < wanted || starved_) {
    if (auto* s = fair_victim(*first, held))
      preempt(*s, request, true);
  }
}

} // namespace troupe
