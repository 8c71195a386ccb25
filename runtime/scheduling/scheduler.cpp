#include "runtime/scheduling/scheduler.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe {

scheduler::scheduler(scheduler_limits limits)
  : limits_(limits), step_budget_({limits.step_tokens, limits.measured_budget, limits.step_target_ms}) {
  for (auto slot = limits_.max_sequences; slot-- > 0;)
    free_slots_.push_back(slot);
}

// -- requests ---------------------------------------------------------------------------------------------------------

std::optional<error> scheduler::submit(admission a) {
  if (a.params->n > limits_.max_sequences)
    return error{errc::bad_request,
                 "`n` is " + std::to_string(a.params->n) + ", but at most " + std::to_string(limits_.max_sequences) +
                   " sequences can run at once",
                 "n"};
  if (!a.again && waiting_.size() >= static_cast<std::size_t>(limits_.max_queue) + free_slots_.size())
    return error{
      errc::overloaded, "the queue is full: " + std::to_string(waiting_.size()) + " requests wait already", {}};
  sequence s;
  s.id = {a.request, 0};
  s.priority = a.priority;
  s.arrival = a.arrival;
  s.params = std::move(a.params);
  s.prompt = std::move(a.prompt);
  s.tokens = *s.prompt;
  s.last_row = s.known() + s.params->max_tokens - 1;
  s.siblings = a.resumed.empty() ? s.params->n - 1 : 0;
  for (auto& r : a.resumed) {
    auto one = s;
    one.id.index = r.index;
    one.tokens.insert(one.tokens.end(), r.emitted.begin(), r.emitted.end());
    add(std::move(one));
  }
  if (a.resumed.empty())
    add(std::move(s));
  stalled_ = false;
  return std::nullopt;
}

scheduler::sequence& scheduler::add(sequence s) {
  auto& stored = sequences_.insert_or_assign(s.id, std::move(s)).first->second;
  queue_of(stored).emplace(order(stored), &stored);
  paused_count_ += stored.paused();
  return stored;
}

void scheduler::cancel(std::uint64_t request) {
  auto first = sequences_.lower_bound({request, 0});
  while (first != sequences_.end() && first->first.request == request)
    end((first++)->first);
}

void scheduler::finish(sequence_id id) { end(id); }

std::vector<std::uint64_t> scheduler::pause(std::uint64_t request, bool paused) {
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
    queue_of(s).erase(order(s));
    s.paused_since = paused ? last_pause_ : 0;
    queue_of(s).emplace(order(s), &s);
    paused_count_ += paused ? 1 : -1;
  }
  stalled_ = false;
  while (paused_count_ > static_cast<std::size_t>(limits_.max_queue + limits_.max_sequences)) {
    dropped.push_back(pauses_.begin()->second);
    cancel(dropped.back());
  }
  return dropped;
}

// -- eligibility ------------------------------------------------------------------------------------------------------

scheduler::sequence* scheduler::find(sequence_id id) {
  auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : &found->second;
}

std::int32_t scheduler::rows_wanted(const sequence& s) const {
  if (s.paused())
    return 0;
  const auto end = std::min(s.known(), s.last_row);
  if (s.planned < end)
    return end - s.planned;
  // One row ahead of the known tokens, while its token is being sampled.
  return s.planned == s.known() && s.samples_in_flight > 0 && s.planned < s.last_row ? 1 : 0;
}

bool scheduler::admissible(const sequence& s) const {
  // After a preemption, samples in flight must arrive first: they are part of what is recomputed.
  return s.samples_in_flight == 0;
}

bool scheduler::can_plan() const {
  if (stalled_ || steps_in_flight_ >= limits_.steps_ahead)
    return false;
  for (auto& [_, s] : running_)
    if (rows_wanted(*s) > 0)
      return true;
  for (auto& [_, s] : waiting_)
    if (admissible(*s))
      return true;
  return false;
}

bool scheduler::wants_step() const { return !awaiting_grant_ && (!later_.empty() || can_plan()); }

// -- planning a step --------------------------------------------------------------------------------------------------

block_request scheduler::begin_step() {
  block_request request = std::exchange(later_, {});
  for (auto& [_, s] : running_)
    add_commit(request, *s);
  budget_ = 0;
  demanded_.clear();
  granted_.clear();
  slots_promised_ = 0;
  if (can_plan()) {
    stalled_ = true; // until there is a plan, or something changes meanwhile
    draft_.emplace();
    budget_ = limits_.step_tokens;
    step_budget_.begin(cost_);
    preempt_for_waiting(request);
    starved_ = false;
    demand_for_running(request);
    demand_for_waiting(request);
  }
  demands_ = request.demands;
  awaiting_grant_ = true;
  return request;
}

scheduler::next scheduler::granted(const block_grant& grant) {
  block_request next;
  // Kept apart from the draft, which may be dropped: the block manager counts these moves as done.
  moves_.insert(moves_.end(), grant.moves.begin(), grant.moves.end());
  // Grants first: a sequence that has rows in this step can no longer be preempted.
  for (std::size_t i = 0; i < demands_.size(); ++i)
    if (grant.answers[i].rows > 0)
      apply(demands_[i], grant.answers[i], grant);
  for (std::size_t i = 0; i < demands_.size(); ++i)
    if (grant.answers[i].rows == 0)
      handle_refusal(demands_[i], next);
  if (draft_ && next.demands.empty()) {
    step_budget_.settle();
    demand_for_running(next);
    demand_for_waiting(next);
    if (next.demands.empty())
      break_deadlock(next);
  }
  demands_ = next.demands;
  if (!next.empty())
    return next;
  awaiting_grant_ = false;
  if (!draft_)
    return std::monostate{};
  if (auto plan = finish_draft())
    return plan;
  return std::monostate{};
}

// Preempts paused or less important sequences for the first waiting one, if it lacks slots or was refused blocks.
void scheduler::preempt_for_waiting(block_request& request) {
  const auto head = std::ranges::find_if(waiting_, [this](auto& entry) { return admissible(*entry.second); });
  if (head == waiting_.end())
    return;
  const auto& first = *head->second;
  const auto wanted = static_cast<std::size_t>(1 + first.siblings);
  auto slots = free_slots_.size();
  std::size_t yielding = 0;
  for (auto& [_, s] : running_)
    if (s->paused() || s->priority < first.priority) {
      slots += 1 + s->sibling_slots.size();
      ++yielding;
    }
  if (slots < wanted || yielding == 0)
    return;
  if (starved_)
    preempt(*victim(), request);
  while (free_slots_.size() < wanted)
    preempt(*victim(), request);
}

void scheduler::demand_for_running(block_request& request) {
  auto left = budget_;
  const auto pass = [&](bool decoding) {
    for (auto& [_, s] : running_) {
      if (s->decodes() != decoding || demanded_.contains(s->id))
        continue;
      auto rows = std::min(rows_wanted(*s), left);
      if (!decoding)
        rows = prompt_rows(*s, rows);
      if (rows > 0) {
        demand(request, *s, rows);
        left -= rows;
      }
    }
  };
  pass(true);
  pass(false);
}

void scheduler::demand_for_waiting(block_request& request) {
  auto left = budget_;
  for (auto& d : request.demands)
    left -= d.rows;
  for (auto& [_, s] : waiting_) {
    if (left <= 0 || starved_)
      return;
    if (!admissible(*s) || demanded_.contains(s->id))
      continue;
    const auto slots = 1 + s->siblings;
    if (static_cast<std::int32_t>(free_slots_.size()) - slots_promised_ < slots)
      return;
    auto rows = prompt_rows(*s, std::min(s->known(), left));
    if (rows <= 0)
      return;
    slots_promised_ += slots;
    demand(request, *s, rows);
    left -= rows;
  }
}

// Rows of a prompt that the step has room for. How much of a waiting prompt is cached is not known yet: its rows may be
// the last ones.
std::int32_t scheduler::prompt_rows(const sequence& s, std::int32_t rows) const {
  return step_budget_.room(cost_, s.running() ? s.planned : s.known() - rows, rows);
}

void scheduler::demand(block_request& request, sequence& s, std::int32_t rows) {
  step_budget_.demand(s.running() ? s.planned : s.known() - rows, rows, !s.running() || !s.decodes());
  block_demand d{s.id, rows, nullptr, 0};
  if (!s.running()) {
    d.open = s.known() == static_cast<std::int32_t>(s.prompt->size())
      ? s.prompt
      : std::make_shared<const std::vector<token_id>>(s.tokens);
    // Leave a block per running sequence, so that the new one is not preempted again at once.
    d.watermark = static_cast<std::int32_t>(running_.size());
  }
  demanded_.insert(s.id);
  request.demands.push_back(std::move(d));
}

void scheduler::apply(const block_demand& asked, const block_answer& answer, const block_grant& grant) {
  auto* s = find(asked.sequence);
  if (!s) { // cancelled meanwhile: return the blocks just opened for it
    if (asked.open)
      later_.releases.push_back(asked.sequence);
    return;
  }
  if (asked.open)
    admit(*s, answer.first_position);
  add_rows(*s, answer, grant);
  budget_ -= answer.rows;
}

void scheduler::handle_refusal(const block_demand& refused, block_request& next) {
  auto* s = find(refused.sequence);
  if (!s)
    return;
  if (refused.open) {
    slots_promised_ -= 1 + s->siblings;
    starved_ = true;
    return;
  }
  // For a decoding sequence, the least important one is preempted, perhaps itself; for a prompt under way, only a
  // paused one. One victim serves all refused demands: if that is too little, they are refused again.
  const bool decodes = s->decodes();
  if (!s->running() || s->paused())
    return;
  auto* last = victim();
  if (!decodes && !(last && last->paused()))
    return;
  if (next.releases.empty())
    preempt(*last, next);
  if (s->running())
    demand(next, *s, decodes ? 1 : refused.rows);
}

void scheduler::add_rows(sequence& s, const block_answer& answer, const block_grant& grant) {
  auto& plan = *draft_;
  kernels::sequence_rows rows;
  rows.first_row = static_cast<std::int32_t>(plan.tokens.size());
  rows.rows = answer.rows;
  rows.first_position = s.planned;
  rows.first_block = static_cast<std::int32_t>(plan.block_tables.size());
  plan.sequences.push_back(rows);
  auto table = grant.tables.begin() + answer.first_block;
  plan.block_tables.insert(plan.block_tables.end(), table, table + answer.blocks);
  for (auto p = s.planned; p < s.planned + answer.rows; ++p) {
    if (p == s.known())
      plan.after_tokens_of = last_sampling_step_;
    plan.tokens.push_back(p < s.known() ? s.tokens[static_cast<std::size_t>(p)] : placeholder(s.slot));
  }
  (s.planned >= static_cast<std::int32_t>(s.prompt->size()) && answer.rows == 1
     ? counters_.decode_rows
     : counters_.prefill_rows) += static_cast<std::uint64_t>(answer.rows);
  step_budget_.grant(s.planned, answer.rows, !s.decodes());
  s.planned += answer.rows;
  granted_.insert(s.id);
  if (s.planned >= s.known())
    add_samples(s);
}

void scheduler::add_samples(sequence& s) {
  auto& plan = *draft_;
  const auto logit_row = static_cast<std::int32_t>(plan.logit_rows.size());
  plan.logit_rows.push_back(static_cast<std::int32_t>(plan.tokens.size()) - 1);
  add_sample(s, logit_row);
  // The prompt is computed once; each sibling samples its own first token from the same logits.
  for (std::int32_t i = 0; i < s.siblings; ++i) {
    sequence sibling = s;
    sibling.id.index = static_cast<std::uint32_t>(i + 1);
    sibling.siblings = 0;
    sibling.sibling_slots.clear();
    sibling.slot = s.sibling_slots[static_cast<std::size_t>(i)];
    sibling.samples_in_flight = 0;
    sibling.sampler_knows = false;
    auto& stored = add(std::move(sibling));
    later_.forks.push_back({s.id, stored.id});
    demanded_.insert(stored.id);
    granted_.insert(stored.id);
    add_sample(stored, logit_row);
  }
  s.siblings = 0;
  s.sibling_slots.clear();
}

void scheduler::add_sample(sequence& s, std::int32_t logit_row) {
  sample_demand d{s.id, s.slot, logit_row, nullptr};
  if (!s.sampler_knows)
    d.start = std::make_shared<const sampling_start>(sampling_start{
      s.params, s.prompt, std::vector<token_id>(s.tokens.begin() + std::ssize(*s.prompt), s.tokens.end())});
  s.sampler_knows = true;
  ++s.samples_in_flight;
  draft_->samples.push_back(std::move(d));
}

// Nothing could be planned and nothing in flight will change that: preempts the least important sequence.
void scheduler::break_deadlock(block_request& next) {
  if (!granted_.empty() || steps_in_flight_ > 0 || demanded_.empty() || running_.empty())
    return;
  preempt(*victim(), next);
  demanded_.clear();
  starved_ = false;
  demand_for_running(next);
  demand_for_waiting(next);
}

std::shared_ptr<const step_plan> scheduler::finish_draft() {
  auto plan = std::exchange(draft_, std::nullopt);
  if (plan->tokens.empty())
    return nullptr;
  stalled_ = false;
  plan->step = ++last_step_;
  plan->ended = std::exchange(ended_, {});
  plan->moves = std::exchange(moves_, {});
  if (!plan->samples.empty())
    last_sampling_step_ = plan->step;
  ++steps_in_flight_;
  ++counters_.steps;
  return std::make_shared<const step_plan>(std::move(*plan));
}

// -- sequence lifetime ------------------------------------------------------------------------------------------------

void scheduler::admit(sequence& s, std::int32_t cached) {
  const auto acquire_slot = [this] {
    auto slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  };
  queue_of(s).erase(order(s));
  s.slot = acquire_slot();
  running_.emplace(order(s), &s);
  for (std::int32_t i = 0; i < s.siblings; ++i)
    s.sibling_slots.push_back(acquire_slot());
  slots_promised_ -= 1 + s.siblings;
  s.planned = cached;
  s.committed = cached;
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

// A paused sequence if there is one, else the youngest of the lowest priority; never one that has rows in this step.
scheduler::sequence* scheduler::victim() {
  sequence* last = nullptr;
  for (auto& [_, s] : running_) {
    if (granted_.contains(s->id))
      continue;
    if (!last || s->paused() >= last->paused())
      last = s;
  }
  return last;
}

void scheduler::preempt(sequence& s, block_request& request) {
  leave(s, request);
  queue_of(s).emplace(order(s), &s);
  ++counters_.preemptions;
}

void scheduler::leave(sequence& s, block_request& request) {
  add_commit(request, s);
  request.releases.push_back(s.id);
  running_.erase(order(s));
  free_slots_.push_back(std::exchange(s.slot, -1));
  free_slots_.insert(free_slots_.end(), s.sibling_slots.begin(), s.sibling_slots.end());
  s.sibling_slots.clear();
}

void scheduler::end(sequence_id id) {
  auto* s = find(id);
  if (!s)
    return;
  if (s->running())
    leave(*s, later_);
  else
    queue_of(*s).erase(order(*s));
  if (s->samples_in_flight > 0 || s->known() > std::ssize(*s->prompt)) // else the sampler does not know it
    ended_.push_back(id);
  const auto since = s->paused_since;
  sequences_.erase(id);
  if (since != 0) {
    --paused_count_;
    if (const auto other = sequences_.lower_bound({id.request, 0});
        other == sequences_.end() || other->first.request != id.request)
      pauses_.erase(since);
  }
  stalled_ = false;
}

void scheduler::finished(const step_result& result) {
  --steps_in_flight_;
  stalled_ = false;
  for (auto& sampled : result.sampled) {
    auto* s = find(sampled.sequence);
    if (!s) {
      ++counters_.discarded_rows;
      continue;
    }
    --s->samples_in_flight;
    s->tokens.push_back(sampled.token.id);
    ++counters_.generated_tokens;
    if (sampled.token.finish != sampled_token::finish::none)
      end(sampled.sequence);
  }
  for (auto& failed : result.failed)
    end(failed.sequence);
}

std::string scheduler::observe(const step_shape& step, double ms) {
  cost_.observe(step, ms);
  return step_budget_.news(cost_);
}

std::vector<scheduler::started> scheduler::collect_started() { return std::exchange(started_, {}); }

scheduler_counters scheduler::counters() const {
  auto c = counters_;
  c.step_rows = step_rows();
  c.cost = cost_.summary();
  for (auto& [_, s] : sequences_)
    ++(s.paused() ? c.paused : s.running() ? c.running : c.waiting);
  return c;
}

} // namespace troupe
