#include "runtime/scheduling/planning/sequence_table.hpp"

#include "runtime/scheduling/planning/step_guesses.hpp"

#include <algorithm>
#include <iterator>

namespace troupe {

sequence_table::sequence_table(std::int32_t slots, step_guesses& guesses, bool recurrent)
  : guesses_(guesses), recurrent_(recurrent) {
  while (slots-- > 0)
    free_slots_.push_back(slots);
}

// -- who there is -----------------------------------------------------------------------------------------------------

scheduled_sequence* sequence_table::find(sequence_id id) {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : &found->second;
}

const scheduled_sequence* sequence_table::find(sequence_id id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : &found->second;
}

sequence_group* sequence_table::find_group(std::uint64_t request) {
  const auto found = groups_.find(request);
  return found == groups_.end() ? nullptr : &found->second;
}

const sequence_group* sequence_table::find_group(std::uint64_t request) const {
  const auto found = groups_.find(request);
  return found == groups_.end() ? nullptr : &found->second;
}

void sequence_table::count(scheduler_counters& into) const {
  for (auto& [_, s] : sequences_)
    ++(s.paused() ? into.paused : s.running() ? into.running : into.waiting);
}

std::vector<step_lane> sequence_table::idle_lanes(std::size_t most) const {
  std::vector<step_lane> lanes;
  for (const bool running : {true, false})
    for (const auto& [id, s] : sequences_) {
      if (s.running() != running || s.embedded())
        continue;
      if (lanes.size() >= most)
        return lanes;
      lanes.push_back({id, standing(s), 0, s.planned});
    }
  return lanes;
}

std::vector<step_lane> sequence_table::running_lanes() const {
  std::vector<step_lane> lanes;
  lanes.reserve(running_.size());
  for (const auto& s : running())
    if (!s.embedded())
      lanes.push_back({s.id, standing(s), 0, s.planned});
  return lanes;
}

std::optional<wait_cause> sequence_table::standing_of(std::uint64_t request) const {
  std::optional<wait_cause> found;
  const auto prefer = {wait_cause::judge,     wait_cause::mask,  wait_cause::turn,
                       wait_cause::preempted, wait_cause::queue, wait_cause::paused};
  const auto rank = [&](wait_cause what) { return std::ranges::find(prefer, what) - prefer.begin(); };
  for (auto at = sequences_.lower_bound({request, 0}); at != sequences_.end() && at->first.request == request; ++at)
    if (!at->second.embedded())
      if (const auto its = standing(at->second); !found || rank(its) < rank(*found))
        found = its;
  return found;
}

wait_cause sequence_table::standing(const scheduled_sequence& s) const {
  const auto* group = find_group(s.id.request);
  const bool late = group ? group->deferred : s.deferred;
  return s.paused() ? wait_cause::paused
    : late          ? (group && group->at_judge ? wait_cause::judge : wait_cause::mask)
    : s.running()   ? wait_cause::turn
    : s.announced   ? wait_cause::preempted
                    : wait_cause::queue;
}

// -- queues and slots -------------------------------------------------------------------------------------------------

void sequence_table::enqueue(scheduled_sequence& s) {
  if (s.running() || s.paused())
    s.waits_since = 0;
  if (s.running())
    running_.emplace(order(s), &s);
  else if (s.paused())
    paused_.emplace(order(s), &s);
  else
    waiting_.add(s.asked->client, place_of(s));
}

void sequence_table::age(std::uint64_t step, std::uint64_t long_wait) {
  if (waiting_.empty() || running_.empty())
    return;
  const auto top = running_.begin()->second->priority;
  std::vector<scheduled_sequence*> old;
  for (const auto& [_, places] : waiting_.by_client())
    for (const auto& place : places) {
      auto& s = at(place.id);
      if (s.waits_since == 0)
        s.waits_since = step;
      if (s.priority < top && step - s.waits_since >= long_wait)
        old.push_back(&s);
    }
  for (auto* s : old) {
    dequeue(*s);
    s->priority = top;
    enqueue(*s);
  }
  if (!old.empty())
    changed();
}

void sequence_table::dequeue(const scheduled_sequence& s) {
  if (s.running())
    running_.erase(order(s));
  else if (s.paused())
    paused_.erase(order(s));
  else
    waiting_.remove(s.asked->client, place_of(s));
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
  enqueue(stored);
  paused_count_ += stored.paused();
  if (stored.running())
    guesses_.begin(stored);
  return stored;
}

void sequence_table::admit(scheduled_sequence& s) {
  dequeue(s);
  waiting_.served(s.asked->client);
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
  enqueue(s);
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
  copies_.insert(copies_.end(), later_copies_.begin(), later_copies_.end());
  later_copies_.clear();
}

void sequence_table::keep(std::span<const kernels::block_copy> line) {
  for (const auto& copy : line)
    copies_.push_back({block_move::kind::copy, copy.from, copy.to});
}

void sequence_table::fork_blocks(const scheduled_sequence& from, const scheduled_sequence& to, bool after_step) {
  later_.forks.push_back({from.id, to.id});
  if (recurrent_)
    (after_step ? later_copies_ : copies_).push_back({block_move::kind::copy_state, from.slot, to.slot});
}

bool sequence_table::forks_later(std::uint64_t request) const {
  return std::ranges::any_of(later_.forks, [request](const block_fork& f) { return f.to.request == request; });
}

void sequence_table::commit(block_request& request) {
  for (auto& s : running())
    commit(s, request);
}

void sequence_table::commit(scheduled_sequence& s, block_request& request) {
  if (s.whole)
    return;
  constexpr auto block = kernels::block_tokens;
  const auto full = std::min(s.planned, s.known()) / block * block;
  if (full <= s.committed)
    return;
  request.commits.push_back({s.id, {s.tokens.begin() + s.committed, s.tokens.begin() + full}});
  s.committed = full;
}

void sequence_table::leave(scheduled_sequence& s, block_request& request) {
  commit(s, request);
  request.releases.push_back(s.id);
  if (&request != &later_) // which comes later: it has no blocks, and gets none of one that was dropped
    std::erase_if(later_.forks, [&](const block_fork& f) { return f.to == s.id; });
  running_.erase(order(s));
  guesses_.end(s);
  // One that ends may have rows in the step that is planned, where another's would meet them in one state.
  (recurrent_ && &request == &later_ ? resting_slots_ : free_slots_).push_back(std::exchange(s.slot, -1));
  free(s.sibling_slots);
  s.planned = 0;
}

void sequence_table::add_load(load_report& to) const {
  for (const auto& [_, s] : sequences_) {
    if (s.gives_way())
      continue;
    const auto with_slots = static_cast<std::int32_t>(s.sibling_slots.size());
    to.running += (s.running() ? 1 : 0) + with_slots;
    to.waiting += (s.running() ? 0 : 1) + s.siblings - with_slots;
    if (s.running() && s.decodes()) {
      to.decodes += shape_of(s.known() - 1, 1, 1);
      continue;
    }
    const auto done = s.running() ? s.planned : std::min(s.expected_cached, s.known() - 1);
    to.prompts += shape_of(done, s.known() - done, 1);
  }
  to.free_slots = free_slots();
}

void sequence_table::add_lengths(load_report& to) const {
  for (const auto& s : running())
    if (s.expected && !s.gives_way()) {
      to.left.push_back(s.left());
      to.growth += s.expected->length.quantile_left(0.8, s.answered());
    }
  std::ranges::sort(to.left);
  to.left.resize(std::min(to.left.size(), load_report::most_left));
}

void sequence_table::suspend(scheduled_sequence& s, block_request& request) {
  ++s.losses;
  leave(s, request);
  enqueue(s);
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
    leave(*s, later_);
  else
    dequeue(*s);
  const auto* g = find_group(id.request);
  if (g ? g->sampler_knows : s->samples_in_flight > 0 || s->known() > s->prompt_tokens() || s->embeds())
    ended_.push_back(id); // else the sampler does not know it
  const auto since = s->paused_since;
  sequences_.erase(id);
  if (since != 0) {
    --paused_count_;
    if (const auto other = sequences_.lower_bound({id.request, 0});
        other == sequences_.end() || other->first.request != id.request)
      pauses_.erase(since);
  }
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
  failed_.emplace_back(request, std::move(why));
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
    dequeue(s);
    s.paused_since = paused ? last_pause_ : 0;
    enqueue(s);
    paused_count_ += paused ? 1 : -1;
  }
  changed();
  while (paused_count_ > most) {
    dropped.push_back(paused_of_largest());
    cancel(dropped.back());
  }
  return dropped;
}

// Of the client that has most paused sequences, the request paused longest: its readers must not cost others theirs.
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
  commit(member, later_); // ahead of forks, which go on behind it
  g.spare_slots.push_back(member.slot);
}

void sequence_table::drop(scheduled_sequence& member) {
  if (member.running())
    release_blocks(member.id);
  dequeue(member);
  paused_count_ -= member.paused();
  sequences_.erase(member.id);
}

sequence_id sequence_table::fork(const scheduled_sequence& parent, sequence_group& g) {
  auto forked = parent;
  become_member(forked, g);
  if (parent.running())
    fork_blocks(parent, forked, false);
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
    later_.forks.push_back({parent.id, forked.id, forked.planned});
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
