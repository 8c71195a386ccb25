#include "runtime/scheduling/planning/step_planner.hpp"

#include "runtime/support/types.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace troupe {

step_planner::step_planner(const scheduler_limits& limits, sequence_table& table, step_guesses& guesses,
                           const step_cost& cost, step_budget& budget)
  : limits_(limits),
    table_(table),
    guesses_(guesses),
    cost_(cost),
    budget_(budget),
    rules_(limits, table),
    shares_(limits, table),
    demands_(table, rules_, shares_, guesses, cost, budget, draft_),
    grants_(table, rules_, shares_, guesses, budget, draft_),
    preemption_(limits, table, rules_, shares_, draft_),
    ahead_(limits.steps_ahead),
    policy_(limits.stages, limits.microbatches),
    microbatches_(static_cast<std::size_t>(policy_.count())) {}

void step_planner::count(scheduler_counters& into) const {
  into.steps = last_step_;
  into.preemptions = preemption_.preempted();
  grants_.count(into);
}

// -- when -------------------------------------------------------------------------------------------------------------

bool step_planner::wants_step() { return !awaiting_grant_ && (!table_.notices().later().empty() || can_plan()); }

// Enough to keep all stages busy, and one that waits for its tokens at the first.
std::ptrdiff_t step_planner::most_in_flight() const {
  return std::max(limits_.stages, policy_.count()) + limits_.steps_ahead - 1;
}

// The one whose last step is longest ago comes first.
std::vector<std::int32_t> step_planner::turns() const {
  std::vector<std::int32_t> all(static_cast<std::size_t>(policy_.count()));
  std::iota(all.begin(), all.end(), 0);
  std::ranges::stable_sort(all, {}, [this](std::int32_t i) { return microbatches_[as_size(i)].planned; });
  return all;
}

// Leaves the turn with the one that can.
bool step_planner::can_plan() {
  if (std::ssize(in_flight_) >= most_in_flight())
    return false;
  for (const auto turn : turns()) {
    take_turn(turn);
    if (can_plan(microbatches_[as_size(turn)]))
      return true;
  }
  return false;
}

bool step_planner::can_plan(microbatch& m) {
  if (m.stalled == table_.version() || held_back(m))
    return false;
  const auto has_rows = [this](const scheduled_sequence& s) { return rules_.wanted(s) > 0 || rules_.crosses(s); };
  if (std::ranges::any_of(table_.running(), has_rows))
    return true;
  for (auto& [_, places] : table_.waiting().by_client())
    for (auto& at : places)
      if (rules_.admissible(table_.at(at.id)))
        return true;
  return false;
}

bool step_planner::others_have_rows() const {
  return std::ranges::any_of(std::as_const(table_).running(), [this](const scheduled_sequence& s) {
    return !rules_.in_turn(s) && rules_.wanted_in_turn(s) > 0;
  });
}

// Whether the next step must or should not be planned before what is in flight is known.
bool step_planner::held_back(microbatch& m) {
  if (!m.held_back || m.held_back->first != table_.version())
    m.held_back = {table_.version(), !can_do_without_unpredictable() || guesses_.wait(table_, rules_)};
  return m.held_back->second;
}

void step_planner::decide_microbatches() {
  if (limits_.stages == 1)
    return;
  step_shape all;
  int sequences = 0;
  bool prompts = !table_.waiting().empty();
  for (auto& s : std::as_const(table_).running())
    if (!s.decodes() || s.embeds()) {
      prompts = prompts || !s.paused();
    } else if (!s.paused()) {
      all += shape_of(s.planned, 1, 1);
      ++sequences;
    }
  policy_.decide(cost_, all, sequences, prompts);
  microbatches_.resize(std::max(microbatches_.size(), as_size(policy_.count())));
  balance_microbatches();
}

// Moves the youngest of the largest one to the smallest one, until all are about equal. Groups stay where they are.
void step_planner::balance_microbatches() {
  const auto count = as_size(policy_.count());
  if (count == 1)
    return;
  std::vector<std::vector<scheduled_sequence*>> movable(count);
  std::vector<std::size_t> sizes(count);
  for (auto& s : table_.running())
    if (s.decodes() && !s.paused() && !s.embeds()) {
      const auto of = as_size(s.microbatch) % count;
      ++sizes[of];
      if (!s.grouped())
        movable[of].push_back(&s);
    }
  for (;;) {
    const auto largest = std::ranges::max_element(sizes), smallest = std::ranges::min_element(sizes);
    auto& from = movable[static_cast<std::size_t>(largest - sizes.begin())];
    if (*largest - *smallest < 2 || from.empty())
      return;
    from.back()->microbatch = static_cast<std::int32_t>(smallest - sizes.begin());
    movable[static_cast<std::size_t>(smallest - sizes.begin())].push_back(from.back());
    from.pop_back();
    --*largest;
    ++*smallest;
    table_.changed();
  }
}

// Whether the next step can do without the sequences that cannot be planned ahead. Those with guesses in flight are
// waited for: the guesser has weighed what that costs when it made them.
bool step_planner::can_do_without_unpredictable() const {
  int left_out = 0;
  for (auto& s : std::as_const(table_).running())
    if (rules_.in_turn(s) && rules_.unpredictable(s)) {
      if (s.guesses > 0)
        return false;
      ++left_out;
    }
  if (left_out == 0)
    return true;
  int others = 0;
  step_shape rest;
  auto left = limits_.step_tokens;
  for (auto& s : std::as_const(table_).running())
    if (const auto rows = std::min(rules_.wanted(s), left); rows > 0) {
      ++others;
      left -= rows;
      rest += shape_of(s.planned, rows, 1);
    }
  return ahead_.leaves_out(cost_, rest, left_out, others);
}

std::optional<guess_request> step_planner::ask_guess_model() {
  if (awaiting_grant_ || (limits_.stages == 1 && !in_flight_.empty()))
    return std::nullopt;
  for (const auto turn : turns()) {
    take_turn(turn);
    if (auto request = guesses_.ask_guess_model(table_, rules_)) {
      table_.changed();
      guess_model_asked_ = true;
      return request;
    }
  }
  return std::nullopt;
}

void step_planner::finished(const step_result& result, double ms, double computed_ms) {
  policy_.finished(result.ms, result.stage_ms);
  decide_microbatches();
  const bool asked = std::exchange(guess_model_asked_, false); // which takes time, too
  if (in_flight_.empty())
    return;
  const auto step = in_flight_.front();
  in_flight_.pop_front();
  if (!asked)
    ahead_.finished(step.ahead, ms - computed_ms, computed_ms);
}

// -- rounds -----------------------------------------------------------------------------------------------------------

block_request step_planner::begin_step() {
  block_request request = table_.notices().take_later();
  table_.begin_step();
  draft_.add_moves(table_.notices().take_copies());
  table_.commit(request);
  if (can_plan()) {
    microbatches_[as_size(rules_.turn())].stalled = table_.version(); // until there is a plan, or something changes
    constexpr std::uint64_t now_and_then = 64, long_wait = 1024;      // steps
    if (last_step_ % now_and_then == 0)
      table_.age(last_step_ + 1, long_wait);
    draft_.begin(limits_.step_tokens, last_step_ + 1);
    budget_.begin(cost_, std::ranges::any_of(std::as_const(table_).running(), &scheduled_sequence::decodes));
    preemption_.suspend_crossing(request);
    preemption_.make_room_for_waiting(request);
    draft_.starve(false);
    draft_.take_extra_logits(guesses_.propose(table_, rules_, draft_.extra_logits(), limits_.step_tokens));
    demands_.of_all();
  } else {
    draft_.begin_without();
  }
  request.demands = draft_.demands();
  awaiting_grant_ = true;
  return request;
}

step_planner::next step_planner::granted(const block_grant& grant) {
  block_request next;
  const auto asked = draft_.take_demands();
  draft_.add_moves(table_.notices().take_copies());
  draft_.add_moves(grant.moves);
  // Grants first: a sequence that has rows in this step can no longer be preempted.
  for (std::size_t i = 0; i < asked.size(); ++i)
    if (grant.answers[i].rows > 0 && !draft_.is_last_row(asked[i].sequence))
      grants_.apply(asked[i], grant.answers[i], grant);
  const auto refused = grants_.apply_groups(asked, grant);
  for (std::size_t i = 0; i < asked.size(); ++i)
    if (grant.answers[i].rows == 0 && !draft_.is_last_row(asked[i].sequence))
      handle_refusal(asked[i], next);
  for (const auto request : refused)
    handle_group_refusal(request, next);
  if (draft_.exists() && draft_.demands().empty()) {
    budget_.settle();
    demands_.of_all();
    if (draft_.demands().empty() && in_flight_.empty() && preemption_.deadlocked() && !others_have_rows()) {
      if (next.releases.empty()) // else others get the blocks of one that gave way to itself
        preemption_.preempt(*preemption_.victim(), next);
      draft_.forget_demands();
      demands_.of_all();
    }
  }
  next.demands = draft_.demands();
  if (!next.empty())
    return next;
  awaiting_grant_ = false;
  if (auto plan = finish_draft())
    return plan;
  return std::monostate{};
}

void step_planner::handle_refusal(const block_demand& refused, block_request& next) {
  auto* s = table_.find(refused.sequence);
  if (!s)
    return;
  if (refused.open) {
    draft_.redeem_slots(s->id);
    draft_.starve(true);
    return;
  }
  // For a decoding sequence, preempts the least important one, perhaps itself; for a prompt under way, only a paused
  // one. One victim serves all refused demands: if that is too little, they are refused again.
  const bool decodes = s->decodes();
  if (!s->running() || s->paused())
    return;
  if (next.releases.empty()) {
    auto* last = preemption_.victim();
    if (!decodes && !(last && last->gives_way()))
      return;
    preemption_.preempt(*last, next);
  }
  if (s->running())
    demands_.of(*s, decodes ? 1 : refused.rows);
}

void step_planner::handle_group_refusal(std::uint64_t request, block_request& next) {
  const auto is_ready = [&] {
    const auto* g = table_.find_group(request); // it may be cancelled, or the victim
    return g && rules_.ready(*g);
  };
  auto* last = preemption_.victim(); // none if all have rows in this step
  if (is_ready() && next.releases.empty() && last)
    preemption_.preempt(*last, next);
  if (is_ready() && last)
    demands_.of_group(*table_.find_group(request));
}

std::shared_ptr<const step_plan> step_planner::finish_draft() {
  auto plan = draft_.take();
  if (!plan)
    return nullptr;
  table_.changed();
  plan->step = ++last_step_;
  plan->ended = table_.notices().take_ended();
  plan->moves = draft_.take_moves();
  microbatches_[as_size(rules_.turn())].planned = plan->step;
  guesses_.planned(*plan);
  in_flight_.push_back({.ahead = !in_flight_.empty()});
  return std::make_shared<const step_plan>(std::move(*plan));
}

} // namespace troupe
