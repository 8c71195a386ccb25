#include "runtime/scheduling/scheduler.hpp"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

namespace troupe {

scheduler::scheduler(scheduler_limits limits, std::shared_ptr<proposer> guesses)
  : limits_(limits),
    proposer_(std::move(guesses)),
    step_budget_({limits.step_tokens, limits.measured_budget, limits.step_target_ms}) {
  for (auto slot = limits_.max_sequences; slot-- > 0;)
    free_slots_.push_back(slot);
}

// -- eligibility ------------------------------------------------------------------------------------------------------

scheduler::sequence* scheduler::find(sequence_id id) {
  auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : &found->second;
}

// The number of borders that a sequence of so many tokens is beyond.
std::int32_t scheduler::rotation_of(std::int32_t length) const {
  return static_cast<std::int32_t>(std::ranges::count_if(limits_.rope_borders, [=](auto b) { return b < length; }));
}

// Rows ahead of what is known can be planned for positions below this.
std::int32_t scheduler::next_border(const sequence& s) const {
  const auto passed = static_cast<std::size_t>(s.rotation);
  return passed < limits_.rope_borders.size() ? limits_.rope_borders[passed] : all;
}

std::int32_t scheduler::rows_wanted(const sequence& s) const {
  if (s.paused() || s.guesses > 0 || s.embedded() || crosses(s))
    return 0;
  auto end = std::min(s.known(), s.last_row);
  if (s.grouped()) {
    const auto& g = groups_.at(s.id.request);
    if (g.judging)
      return 0;
    if (g.members.size() > 1)                                                   // the last rows are planned together
      return ready(g) ? 1 : std::max(end - 1 - s.planned, s.running() ? 0 : 1); // a row, too, to be admitted
  }
  if (s.planned < end)
    return end - s.planned;
  // One row ahead of the known tokens, while its token is being sampled.
  const auto most = std::min(s.last_row, next_border(s));
  return s.planned == s.known() && s.samples_in_flight > 0 && !s.guide && s.planned < most ? 1 : 0;
}

// Rows whose logits are all wanted are limited.
std::int32_t scheduler::rows_allowed(const sequence& s, std::int32_t rows) const {
  return scoring(s) ? std::min(rows, std::max(s.planned, s.scored) + extra_logits_ - s.planned) : rows;
}

bool scheduler::ready(const group& g) const {
  return std::ranges::all_of(g.members, [this](sequence_id id) {
    const auto& s = sequences_.at(id);
    return s.running() && !s.paused() && s.planned == s.known() - 1 && !crosses(s);
  });
}

// The sequences that decode in the next step, as far as they can have guesses.
scheduler::decoding_step scheduler::decoding() {
  decoding_step found;
  context_ = 0;
  for (auto& [_, s] : running_) {
    const auto rows = rows_wanted(*s);
    found.step.rows += rows;
    if (rows == 0 || !s->decodes() || !s->guesses_help() || s->siblings > 0)
      continue;
    found.in_flight = found.in_flight || s->samples_in_flight > 0;
    context_ += s->planned;
    found.sequences.push_back({s->id, std::max(std::min(s->last_row, next_border(*s)) - s->planned - 1, 0)});
  }
  found.step.rows = std::min(found.step.rows, limits_.step_tokens);
  found.step.sequences = decoding_ = static_cast<int>(found.sequences.size());
  return found;
}

// Whether the next step must or should not be planned before what is in flight is known.
bool scheduler::held_back() {
  if (held_back_)
    return *held_back_;
  const auto unpredictable = [this](auto& entry) {
    const auto& s = *entry.second;
    if (s.grouped()) {
      const auto& g = groups_.at(s.id.request);
      return g.judging && !g.deferred;
    }
    return s.guesses > 0 || (s.guide && s.samples_in_flight > 0 && !s.deferred);
  };
  bool hold = std::ranges::any_of(running_, unpredictable);
  if (!hold && proposer_)
    if (const auto next = decoding(); !next.sequences.empty())
      hold = next.in_flight ? proposer_->waits(next.step, next.sequences) : proposer_->asked();
  held_back_ = hold;
  return hold;
}

std::optional<draft_request> scheduler::collect_draft_request() {
  if (!proposer_ || awaiting_grant_ || steps_in_flight_ > 0)
    return std::nullopt;
  const auto next = decoding();
  if (next.sequences.empty())
    return std::nullopt;
  auto request = proposer_->collect(next.step, next.sequences, extra_logit_rows);
  if (request)
    changed();
  return request;
}

// Something happened that may allow, or forbid, to plan a step.
void scheduler::changed() {
  stalled_ = false;
  held_back_.reset();
}

bool scheduler::admissible(const sequence& s) const {
  // After a preemption, samples in flight must arrive first: they are part of what is recomputed.
  return s.samples_in_flight == 0 && !(s.grouped() && groups_.at(s.id.request).judging) && rows_wanted(s) > 0;
}

bool scheduler::can_plan() {
  if (stalled_ || steps_in_flight_ >= limits_.steps_ahead)
    return false;
  if (held_back())
    return false;
  for (auto& [_, s] : running_)
    if (rows_wanted(*s) > 0 || crosses(*s))
      return true;
  for (auto& [_, places] : waiting_.by_client())
    for (auto& at : places)
      if (admissible(sequences_.at(at.id)))
        return true;
  return false;
}

bool scheduler::wants_step() { return !awaiting_grant_ && (!later_.empty() || can_plan()); }

// -- sequence lifetime ------------------------------------------------------------------------------------------------

void scheduler::admit(sequence& s, std::int32_t cached) {
  const auto acquire_slot = [this] {
    auto slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  };
  dequeue(s);
  waiting_.served(s.client);
  slots_promised_ -= s.slots_needed();
  s.slot = acquire_slot();
  enqueue(s);
  start_guessing(s);
  auto& reserved = s.grouped() ? groups_.at(s.id.request).spare_slots : s.sibling_slots;
  for (auto more = sibling_slots(s); more > 0; --more)
    reserved.push_back(acquire_slot());
  if (s.grouped()) {
    s.siblings = 0;
    groups_.at(s.id.request).judged = 0;
  }
  s.planned = cached;
  s.committed = cached;
  s.rotation = rotation_of(s.known());
  s.sampler_knows = false;
  if (!std::exchange(s.announced, true)) {
    started_.push_back({s.id.request, cached});
    counters_.prompt_tokens += s.prompt->size();
  }
}

void scheduler::add_commit(block_request& request, sequence& s) const {
  constexpr auto block = kernels::block_tokens;
  const auto full = std::min(s.planned, s.known()) / block * block;
  if (full <= s.committed)
    return;
  request.commits.push_back({s.id, {s.tokens.begin() + s.committed, s.tokens.begin() + full}});
  s.committed = full;
}

void scheduler::leave(sequence& s, block_request& request) {
  add_commit(request, s);
  request.releases.push_back(s.id);
  running_.erase(order(s));
  if (proposer_ && s.guesses_help())
    proposer_->end(s.id);
  free_slots_.push_back(std::exchange(s.slot, -1));
  free_slots_.insert(free_slots_.end(), s.sibling_slots.begin(), s.sibling_slots.end());
  s.sibling_slots.clear();
  s.planned = 0;
}

void scheduler::end(sequence_id id) {
  auto* s = find(id);
  if (!s)
    return;
  if (s->running())
    leave(*s, later_);
  else
    dequeue(*s);
  const auto g = groups_.find(id.request);
  if (g != groups_.end() ? g->second.sampler_knows
                         : s->samples_in_flight > 0 || s->known() > s->prompt_tokens() || s->embeds())
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

void scheduler::finished(const step_result& result, double ms, double computed_ms) {
  --steps_in_flight_;
  book(result);
  if (proposer_ && !guessed_steps_.empty()) {
    const auto step = guessed_steps_.front();
    guessed_steps_.pop_front();
    const auto certain = [&](const step_shape& s) { return cost_.certain(static_cast<std::int32_t>(s.rows)); };
    const auto plain_ms = cost_.expected_ms(step.without);
    proposer_->finished({step.plain, ms, computed_ms, plain_ms, cost_.expected_ms(step.with) - plain_ms,
                         certain(step.without) && certain(step.with)});
  }
  for (const auto id : result.deferred)
    defer(id);
}

// What was computed for guesses is lost: the rows behind the known tokens will be overwritten.
void scheduler::defer(sequence_id id) {
  if (const auto g = groups_.find(id.request); g != groups_.end()) {
    g->second.deferred = true;
  } else if (auto* s = find(id)) {
    s->deferred = true;
    if (std::exchange(s->guesses, 0) > 0 && s->running())
      s->planned = s->known();
  }
}

// The tokens of a result, what became of guesses and groups, and who failed.
void scheduler::book(const step_result& result) {
  changed();
  std::set<sequence_id> with_guesses;
  for (auto& outcome : result.judged) {
    counters_.accepted_tokens += static_cast<std::uint64_t>(outcome.accepted);
    with_guesses.insert(outcome.sequence);
    if (const auto* s = find(outcome.sequence); proposer_ && s && s->running())
      proposer_->judged(outcome.sequence, outcome.choices);
  }
  for (auto& sampled : result.sampled) {
    auto* s = find(sampled.sequence);
    if (!s) {
      ++counters_.discarded_rows;
      continue;
    }
    s->tokens.push_back(sampled.token.id);
    s->mirostat_mu = sampled.token.mirostat_mu;
    ++counters_.generated_tokens;
    if (proposer_ && s->running() && !with_guesses.contains(s->id))
      proposer_->append(s->id, std::span(&sampled.token.id, 1));
    if (sampled.more)
      continue;
    --s->samples_in_flight;
    s->deferred = false;
    if (std::exchange(s->guesses, 0) > 0 && s->running())
      s->planned = s->known() - 1; // what was computed for wrong guesses will be overwritten
    if (sampled.token.finish != sampled_token::finish::none)
      end(sampled.sequence);
  }
  for (auto& outcome : result.groups)
    book(outcome);
  for (auto& failed : result.failed)
    if (groups_.contains(failed.sequence.request))
      cancel(failed.sequence.request);
    else
      end(failed.sequence);
}

bool scheduler::follows_guides(const step_plan& plan) {
  return std::ranges::any_of(plan.samples, &sample_demand::guided) ||
    std::ranges::any_of(plan.groups, [](const group_demand& d) { return d.start && d.start->guide; });
}

// The first child of each parent goes on in its place, with its blocks; others are forked from it.
void scheduler::book(const group_outcome& outcome) {
  const auto found = groups_.find(outcome.request);
  if (found == groups_.end()) {
    ++counters_.discarded_rows;
    return;
  }
  if (outcome.children.empty()) {
    counters_.generated_tokens += outcome.told ? 1 : 0;
    return cancel(outcome.request);
  }
  auto& g = found->second;
  const auto parents = std::exchange(g.members, {});
  g.judging = g.deferred = false;
  ++g.judged;
  g.losses = 0;
  std::vector<bool> goes_on(parents.size());
  for (auto& child : outcome.children)
    goes_on[child.parent] = true;
  for (std::size_t i = 0; i < parents.size(); ++i)
    if (!goes_on[i])
      drop(sequences_.at(parents[i]), g);
  for (auto& child : outcome.children) {
    const auto& parent = sequences_.at(parents[child.parent]);
    if (goes_on[child.parent]) {
      goes_on[child.parent] = false;
      g.members.push_back(parent.id);
      continue;
    }
    auto fork = parent;
    fork.id.index = g.next_index++;
    if (parent.running()) {
      fork.slot = g.spare_slots.back();
      g.spare_slots.pop_back();
      later_.forks.push_back({parent.id, fork.id});
    }
    fork.siblings = 0;
    g.members.push_back(add(std::move(fork)).id);
  }
  for (std::size_t i = 0; i < g.members.size(); ++i)
    sequences_.at(g.members[i]).tokens.push_back(outcome.children[i].token);
  counters_.generated_tokens += outcome.told ? 1 : outcome.children.size();
  reserve_slots(g);
}

// A sequence of a group that does not go on.
void scheduler::drop(sequence& s, group& g) {
  if (s.running()) {
    later_.releases.push_back(s.id);
    g.spare_slots.push_back(s.slot);
  }
  dequeue(s);
  paused_count_ -= s.paused();
  sequences_.erase(s.id);
}

std::vector<std::pair<std::uint64_t, error>> scheduler::collect_failed() { return std::exchange(failed_, {}); }

step_estimate scheduler::estimate(int rows) const {
  const step_shape step{.rows = static_cast<double>(rows),
                        .logit_rows = static_cast<double>(rows),
                        .attended = context_ / std::max(decoding_, 1) * rows,
                        .read = context_};
  return {cost_.expected_ms(step), cost_.certain(rows)};
}

std::string scheduler::observe(const step_shape& step, double ms) {
  cost_.observe(step, ms);
  return step_budget_.news(cost_);
}

std::vector<scheduler::started> scheduler::collect_started() { return std::exchange(started_, {}); }

scheduler_counters scheduler::counters() const {
  auto c = counters_;
  c.step_rows = static_cast<std::uint64_t>(step_rows());
  c.cost = cost_.summary();
  for (auto& [_, s] : sequences_)
    ++(s.paused() ? c.paused : s.running() ? c.running : c.waiting);
  return c;
}

} // namespace troupe
