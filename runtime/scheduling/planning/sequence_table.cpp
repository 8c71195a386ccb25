#include "runtime/scheduling/planning/sequence_table.hpp"

#include "runtime/scheduling/planning/step_guesses.hpp"

#include <algorithm>
#include <iterator>

namespace troupe {

sequence_table::sequence_table(std::int32_t slots, step_guesses& guesses, bool recurrent)
  : guesses_(guesses), recurrent_(recurrent), notices_(recurrent) {
  while (slots-- > 0)
    free_slots_.push_back(slots);
}

// -- queues and slots -------------------------------------------------------------------------------------------------

void sequence_table::age(std::uint64_t step, std::uint64_t long_wait) {
  if (waiting().empty() || idle())
    return;
  const auto top = (*running().begin()).priority;
  std::vector<scheduled_sequence*> old;
  for (const auto& [_, places] : waiting().by_client())
    for (const auto& place : places) {
      auto& s = at(place.id);
      if (s.waits_since == 0)
        s.waits_since = step;
      if (s.priority < top && step - s.waits_since >= long_wait)
        old.push_back(&s);
    }
  for (auto* s : old) {
    queues_.leave(*s);
    s->priority = top;
    queues_.enter(*s);
  }
  if (!old.empty())
    changed();
}

std::int32_t sequence_table::take_slot() {
  const auto slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

void sequence_table::free(std::vector<std::int32_t>& slots) {
  free_slots_.insert(free_slots_.end(), slots.begin(), slots.end());
  slots.clear();
}

// -- how they come and go ---------------------------------------------------------------------------------------------

scheduled_sequence& sequence_table::add(scheduled_sequence s) {
  auto& stored = sequences_.insert_or_assign(s.id, std::move(s)).first->second;
  queues_.enter(stored);
  if (stored.running())
    guesses_.begin(stored);
  return stored;
}

void sequence_table::admit(scheduled_sequence& s) {
  queues_.serve(s);
  if (s.grouped()) {
    auto& g = group_of(s);
    if (auto slots = slots_needed(s); slots > 0) {
      for (; slots > 0; --slots)
        g.spare_slots.push_back(take_slot());
      at(g.members.front()).siblings = 0;
      g.judged = 0;
    }
    s.slot = g.spare_slots.back();
    g.spare_slots.pop_back();
  } else {
    s.slot = take_slot();
  }
  queues_.enter(s);
  guesses_.begin(s);
}

void sequence_table::reserve_slots(scheduled_sequence& s, std::int32_t slots) {
  for (; slots > 0; --slots)
    s.sibling_slots.push_back(take_slot());
}

std::int32_t sequence_table::slots_needed(const scheduled_sequence& s) const {
  if (!s.grouped())
    return 1;
  const auto& g = group_of(s);
  return one_runs(g) ? 0 : static_cast<std::int32_t>(g.members.size()) + at(g.members.front()).siblings;
}

std::vector<sequence_id> sequence_table::with_reserved_slots() const {
  std::vector<sequence_id> all;
  const sequence_group* seen = nullptr; // members are neighbours
  for (const auto& s : running()) {
    const auto* g = s.grouped() ? &group_of(s) : nullptr;
    if (g && g != std::exchange(seen, g))
      std::ranges::copy_if(g->members, std::back_inserter(all), [this](sequence_id id) {
        const auto& other = at(id);
        return !other.running() && !other.paused();
      });
  }
  return all;
}

bool sequence_table::one_runs(const sequence_group& g) const {
  return std::ranges::any_of(g.members, [this](sequence_id id) { return at(id).running(); });
}

void sequence_table::begin_step() {
  free(resting_slots_);
  notices_.begin_step();
}

void sequence_table::commit(block_request& request) {
  for (auto& s : running())
    sequence_notices::commit(s, request);
}

void sequence_table::leave(scheduled_sequence& s, block_request* now) {
  notices_.leave(s, now);
  queues_.leave(s);
  guesses_.end(s);
  // One that ends may have rows in the step that is planned, where another's would meet them in one state.
  (recurrent_ && !now ? resting_slots_ : free_slots_).push_back(std::exchange(s.slot, -1));
  free(s.sibling_slots);
  s.planned = 0;
}

void sequence_table::suspend(scheduled_sequence& s, block_request& request) {
  ++s.losses;
  leave(s, &request);
  queues_.enter(s);
}

void sequence_table::suspend(sequence_group& g, block_request& request) {
  for (const auto id : g.members)
    if (auto& s = at(id); s.running())
      suspend(s, request);
  free(g.spare_slots);
  settle(g);
}

void sequence_table::end(sequence_id id) {
  auto* s = find(id);
  if (!s)
    return;
  if (s->running())
    leave(*s, nullptr);
  else
    queues_.leave(*s);
  const auto* g = find_group(id.request);
  if (g ? g->sampler_knows : s->samples_in_flight > 0 || s->known() > s->prompt_tokens() || s->embeds())
    notices_.ended(id); // else the sampler does not know it
  const auto since = s->paused_since;
  sequences_.erase(id);
  const auto other = sequences_.lower_bound({id.request, 0});
  if (since != 0 && (other == sequences_.end() || other->first.request != id.request))
    pauses_.erase(since);
  changed();
}

void sequence_table::cancel(std::uint64_t request) {
  auto first = sequences_.lower_bound({request, 0});
  while (first != sequences_.end() && first->first.request == request)
    end((first++)->first);
  if (const auto g = groups_.find(request); g != groups_.end()) {
    free(g->second.spare_slots);
    groups_.erase(g);
  }
}

void sequence_table::fail(std::uint64_t request, error why) {
  notices_.failed(request, std::move(why));
  cancel(request);
}

std::vector<std::uint64_t> sequence_table::pause(std::uint64_t request, bool paused, std::size_t most) {
  std::vector<std::uint64_t> dropped;
  const auto first = sequences_.lower_bound({request, 0});
  if (first == sequences_.end() || first->first.request != request || first->second.paused() == paused)
    return dropped;
  if (paused)
    pauses_.emplace(++last_pause_, request);
  else
    pauses_.erase(first->second.paused_since);
  for (auto i = first; i != sequences_.end() && i->first.request == request; ++i) {
    auto& s = i->second;
    queues_.leave(s);
    s.paused_since = paused ? last_pause_ : 0;
    queues_.enter(s);
  }
  changed();
  while (queues_.paused_count() > most) {
    dropped.push_back(paused_of_largest());
    cancel(dropped.back());
  }
  return dropped;
}

// The request paused longest of the client that has most paused sequences: its readers must not cost others theirs.
std::uint64_t sequence_table::paused_of_largest() const {
  std::map<std::string_view, std::size_t> sizes;
  for (const auto& [_, s] : sequences_)
    if (s.paused())
      ++sizes[s.asked->client];
  const auto largest = std::ranges::max_element(sizes, {}, [](auto& each) { return each.second; })->first;
  const auto client_of = [this](std::uint64_t request) -> std::string_view {
    return sequences_.lower_bound({request, 0})->second.asked->client;
  };
  return std::ranges::find_if(pauses_, [&](auto& each) { return client_of(each.second) == largest; })->second;
}

// -- groups -----------------------------------------------------------------------------------------------------------

void sequence_table::spare(scheduled_sequence& member, sequence_group& g) {
  if (!member.running())
    return;
  notices_.commit(member); // ahead of forks, which go on behind it
  g.spare_slots.push_back(member.slot);
}

void sequence_table::drop(scheduled_sequence& member) {
  if (member.running())
    notices_.release(member.id);
  queues_.leave(member);
  sequences_.erase(member.id);
}

sequence_id sequence_table::fork(const scheduled_sequence& parent, sequence_group& g) {
  auto forked = parent;
  become_member(forked, g);
  if (parent.running())
    notices_.fork(parent, forked, false);
  return add(std::move(forked)).id;
}

sequence_id sequence_table::fork(const scheduled_sequence& parent, sequence_group& g, std::vector<token_id> tokens) {
  auto forked = parent;
  const auto alike = static_cast<std::int32_t>(std::ranges::mismatch(parent.tokens, tokens).in2 - tokens.begin());
  forked.tokens = std::move(tokens);
  forked.planned = std::min({parent.planned, alike, forked.known() - 1});
  forked.committed = std::min(parent.committed, forked.planned / kernels::block_tokens * kernels::block_tokens);
  become_member(forked, g);
  if (parent.running())
    notices_.fork(parent.id, forked.id, forked.planned);
  return add(std::move(forked)).id;
}

void sequence_table::become_member(scheduled_sequence& forked, sequence_group& g) {
  forked.id.index = g.next_index++;
  forked.siblings = 0;
  if (forked.running()) {
    forked.slot = g.spare_slots.back();
    g.spare_slots.pop_back();
  }
}

void sequence_table::settle(sequence_group& g) {
  for (const auto id : g.members)
    at(id).siblings = 0;
  if (auto& first = at(g.members.front()); !first.running())
    first.siblings = first.asked->sampling.width() - static_cast<std::int32_t>(g.members.size());
}

} // namespace troupe
