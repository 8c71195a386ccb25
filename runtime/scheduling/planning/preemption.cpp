#include "runtime/scheduling/planning/preemption.hpp"

#include "runtime/sampling/sequence_need.hpp"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

namespace troupe {

// Itself, or another of its group.
bool preemption::has_rows(const scheduled_sequence& s) const {
  return draft_.granted(s.id) ||
    (s.grouped() &&
     std::ranges::any_of(table_.group_of(s).members, [this](sequence_id id) { return draft_.granted(id); }));
}

// Whether it belongs to the oldest group, and that has lost its blocks again and again.
bool preemption::urgent(const scheduled_sequence& s) const {
  return s.grouped() && s.id.request == (*table_.running().begin()).id.request && table_.group_of(s).urgent();
}

// One that gives way if there is one, else one of the lowest priority: of the client that holds most slots, if that is
// more than an equal share. Of these, one that has lost its blocks least often, and whose answer is expected to take
// most tokens still; of equals the youngest. An urgent group comes last. Never one that has rows in this step, nor one that
// does not yield to `newcomer`, if there is one.
scheduled_sequence* preemption::victim(const scheduled_sequence* newcomer) {
  const auto held = shares_.held();
  const auto share = held.size() > 1 ? shares_.equal() : limits_.max_sequences;
  const auto loses = [&](const scheduled_sequence& s) { // before others
    const auto slots = held.at(s.asked->client);
    return std::tuple(s.gives_way(), -s.priority, !urgent(s), slots > share ? slots : 0, -s.losses, s.left());
  };
  scheduled_sequence* last = nullptr;
  for (auto& s : table_.running())
    if (!has_rows(s) && (!newcomer || s.gives_way() || s.yields_to(*newcomer)) && (!last || loses(s) >= loses(*last)))
      last = &s;
  return last;
}

void preemption::preempt(scheduled_sequence& s, block_request& request, bool fits) {
  if (s.grouped())
    return preempt_group(s.id.request, request, fits);
  table_.suspend(s, request);
  ++preempted_;
}

// A group that is alone and still lacks blocks could never go on.
void preemption::preempt_group(std::uint64_t request_id, block_request& request, bool fits) {
  const auto member = [request_id](const scheduled_sequence& s) { return s.id.request == request_id; };
  const bool alone = std::ranges::all_of(table_.running(), member);
  auto& g = *table_.find_group(request_id);
  fits = fits || std::ranges::none_of(g.members, [this](sequence_id id) { return draft_.demanded(id); });
  if (!fits && member(*table_.running().begin()))
    ++g.losses;
  if (!fits && alone && table_.notices().later().releases.empty() && request.releases.empty() && g.members.size() > 1)
    return table_.fail(request_id, too_many_blocks(table_.at(g.members.front()).asked->sampling));
  preempted_ += static_cast<std::uint64_t>(
    std::ranges::count_if(g.members, [this](auto each) { return table_.at(each).running(); }));
  table_.suspend(g, request);
}

void preemption::suspend_crossing(block_request& request) {
  std::vector<scheduled_sequence*> all;
  for (auto& s : table_.running())
    if (rules_.crosses(s))
      all.push_back(&s);
  for (auto* s : all)
    if (s->grouped())
      table_.suspend(table_.group_of(*s), request);
    else
      table_.suspend(*s, request);
}

const scheduled_sequence* preemption::first_waiting(const slots_by_client& held) const {
  fair_queue::turns turns(table_.waiting(), held);
  while (const auto id = turns.next())
    if (const auto& s = table_.at(*id); rules_.admissible(s) && table_.slots_needed(s) > 0)
      return &s;
  return nullptr;
}

// Who gives a slot to a client that has none: the youngest sequence of the client that holds most, if that is more than
// an equal share. A group loses all of its slots at once, so it has some steps between two losses.
scheduled_sequence* preemption::fair_victim(const scheduled_sequence& first, const slots_by_client& held) {
  constexpr int fewest_judged = 16;
  if (held.contains(first.asked->client))
    return nullptr;
  const auto share = std::max(1, shares_.equal());
  scheduled_sequence* found = nullptr;
  for (auto& s : table_.running()) {
    const auto slots = held.at(s.asked->client);
    if (slots <= share || s.priority > first.priority || (s.grouped() && table_.group_of(s).judged < fewest_judged))
      continue;
    if (!found || slots >= held.at(found->asked->client))
      found = &s;
  }
  return found;
}

void preemption::make_room_for_waiting(block_request& request) {
  if (table_.waiting().empty())
    return;
  const auto held = shares_.held();
  const auto* first = first_waiting(held);
  if (!first)
    return;
  const auto wanted = table_.slots_needed(*first);
  auto slots = table_.free_slots();
  bool yielding = false;
  for (auto& s : table_.running())
    if (s.gives_way() || s.yields_to(*first)) {
      slots += shares_.held_by(s);
      yielding = true;
    }
  if (slots >= wanted && yielding) {
    bool starved = draft_.starved();
    while (std::exchange(starved, false) || table_.free_slots() < wanted)
      if (auto* s = victim(first))
        preempt(*s, request, true);
      else
        break;
  } else if (table_.free_slots() < wanted || draft_.starved()) {
    if (auto* s = fair_victim(*first, held))
      preempt(*s, request, true);
  }
}

bool preemption::deadlocked() const {
  const auto incomplete = [this](const scheduled_sequence& s) { // waits for slots of its other sequences
    return s.grouped() && !s.paused() && !rules_.ready(table_.group_of(s));
  };
  const auto late = [this](const scheduled_sequence& s) { // its tokens will change that
    return s.grouped() ? table_.group_of(s).deferred : s.deferred;
  };
  return !draft_.any_granted() && !table_.idle() && table_.notices().later().empty() &&
    std::ranges::none_of(table_.running(), late) &&
    (draft_.any_demanded() || std::ranges::any_of(table_.running(), incomplete));
}

} // namespace troupe
