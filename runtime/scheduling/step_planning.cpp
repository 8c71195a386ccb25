// How the scheduler plans a step, in rounds of block requests and grants.
#include "runtime/scheduling/scheduler.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace troupe {

namespace {

/// The rows of a plan that hold guesses. Read from the plan alone: a sequence may have been cancelled since.
step_shape guesses_of(const step_plan& plan) {
  step_shape all;
  for (const auto& sample : plan.samples) {
    if (sample.guesses == 0)
      continue;
    const auto row = plan.logit_rows[static_cast<std::size_t>(sample.logit_row)] + 1;
    const auto of = std::ranges::find_if(plan.sequences, [row](auto& s) { return row < s.first_row + s.rows; });
    all += shape_of_guesses(of->first_position + row - of->first_row, sample.guesses);
  }
  return all;
}

} // namespace

// -- planning a step --------------------------------------------------------------------------------------------------

block_request scheduler::begin_step() {
  block_request request = std::exchange(later_, {});
  for (auto& [_, s] : running_)
    add_commit(request, *s);
  budget_ = 0;
  demanded_.clear();
  last_rows_.clear();
  granted_.clear();
  slots_promised_ = 0;
  if (can_plan()) {
    stalled_ = true; // until there is a plan, or something changes meanwhile
    draft_.emplace();
    budget_ = limits_.step_tokens;
    step_budget_.begin(cost_);
    extra_logits_ = extra_logit_rows;
    suspend_crossing(request);
    preempt_for_waiting(request);
    starved_ = false;
    ask_for_guesses();
    demand_rows(request);
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
    if (grant.answers[i].rows > 0 && !last_rows_.contains(demands_[i].sequence))
      apply(demands_[i], grant.answers[i], grant);
  const auto refused = apply_groups(grant);
  for (std::size_t i = 0; i < demands_.size(); ++i)
    if (grant.answers[i].rows == 0 && !last_rows_.contains(demands_[i].sequence))
      handle_refusal(demands_[i], next);
  for (const auto request : refused)
    handle_group_refusal(request, next);
  if (draft_ && next.demands.empty()) {
    step_budget_.settle();
    demand_rows(next);
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

// Asks for guesses of the sequences that have nothing but their last known token to compute.
void scheduler::ask_for_guesses() {
  guesses_.clear();
  if (!proposer_)
    return;
  const auto next = decoding();
  if (next.sequences.empty() || next.in_flight)
    return;
  const auto room = std::min(extra_logits_, budget_ - std::min(next.step.rows, budget_));
  auto proposals = proposer_->propose(next.step, next.sequences, room);
  for (std::size_t i = 0; i < proposals.size(); ++i) {
    auto& guesses = proposals[i];
    const auto most = std::min(next.sequences[i].most, extra_logits_);
    guesses.resize(std::min(guesses.size(), static_cast<std::size_t>(most)));
    extra_logits_ -= static_cast<std::int32_t>(guesses.size());
    if (!guesses.empty())
      guesses_.emplace(next.sequences[i].id, std::move(guesses));
  }
}

void scheduler::demand_rows(block_request& request) {
  demand_for_decoding(request);
  auto shares = divide_rows(request);
  demand_for_prompts(request, shares);
  demand_for_waiting(request, shares);
}

std::int32_t scheduler::rows_left(const block_request& request) const {
  auto left = budget_;
  for (auto& d : request.demands)
    left -= d.rows;
  return left;
}

// Among the clients with prompts of the highest priority that are under way or could start now.
row_shares scheduler::divide_rows(const block_request& request) {
  row_shares shares;
  const auto left = rows_left(request);
  if (left <= 0)
    return shares;
  std::vector<const sequence*> prompts;
  for (auto& [_, s] : running_)
    if (!s->decodes() && !demanded_.contains(s->id) && rows_wanted(*s) > 0)
      prompts.push_back(s);
  auto slots = static_cast<std::int32_t>(free_slots_.size()) - slots_promised_;
  if (!waiting_.empty() && slots > 0 && !starved_) {
    fair_queue::turns turns(waiting_, held_slots());
    for (auto id = turns.next(); id && slots > 0; id = turns.next()) {
      const auto& s = sequences_.at(*id);
      if (!admissible(s) || demanded_.contains(s.id))
        continue;
      slots -= s.slots_needed();
      turns.take(s.slots_needed());
      prompts.push_back(&s);
    }
  }
  auto top = std::numeric_limits<int>::min();
  for (const auto* s : prompts)
    top = std::max(top, s->priority);
  for (const auto* s : prompts)
    if (s->priority == top)
      shares.want(s->client, std::min(rows_wanted(*s), left));
  shares.divide(step_budget_.room(cost_, 0, left), kernels::block_tokens);
  return shares;
}

void scheduler::demand_for_decoding(block_request& request) {
  auto left = budget_;
  const auto decode = [&](sequence& s) {
    if (s.grouped() && groups_.at(s.id.request).members.size() > 1) {
      const auto& members = groups_.at(s.id.request).members;
      if (left < std::ssize(members))
        return;
      demand_last_rows(request, members);
      left -= static_cast<std::int32_t>(members.size());
      return;
    }
    const auto guesses = guesses_.find(s.id);
    const auto more = guesses == guesses_.end() ? 0 : static_cast<std::int32_t>(guesses->second.size());
    const auto rows = std::min(rows_wanted(s) + more, left);
    demand(request, s, rows);
    left -= rows;
  };
  for (auto& [_, s] : running_)
    if (left > 0 && rows_wanted(*s) > 0 && s->decodes() && !demanded_.contains(s->id))
      decode(*s);
}

void scheduler::demand_for_prompts(block_request& request, row_shares& shares) {
  auto left = rows_left(request);
  for (auto& [_, s] : running_) {
    if (s->decodes() || demanded_.contains(s->id))
      continue;
    const auto rows = prompt_rows(*s, rows_allowed(*s, std::min({rows_wanted(*s), left, shares.left(s->client)})));
    if (rows > 0) {
      demand(request, *s, rows);
      shares.take(s->client, rows);
      left -= rows;
    }
  }
}

void scheduler::demand_last_rows(block_request& request, const std::vector<sequence_id>& members) {
  for (const auto id : members) {
    demand(request, sequences_.at(id), 1);
    last_rows_.insert(id);
  }
}

void scheduler::demand_for_waiting(block_request& request, row_shares& shares) {
  auto left = rows_left(request);
  if (left <= 0 || starved_ || waiting_.empty())
    return;
  fair_queue::turns turns(waiting_, held_slots());
  while (const auto id = turns.next()) {
    auto& s = sequences_.at(*id);
    if (!admissible(s) || demanded_.contains(s.id))
      continue;
    const auto slots = s.slots_needed();
    if (left <= 0 || static_cast<std::int32_t>(free_slots_.size()) - slots_promised_ < slots)
      return;
    const auto share = shares.left(s.client);
    if (share == 0)
      continue;
    const auto rows = prompt_rows(s, rows_allowed(s, std::min({rows_wanted(s), left, share})));
    if (rows <= 0)
      return;
    slots_promised_ += slots;
    turns.take(slots);
    shares.take(s.client, rows);
    demand(request, s, rows);
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
  block_demand d{s.id, rows, nullptr, 0, s.planned};
  if (!s.running()) {
    const auto end = scoring(s) ? rows : rows_wanted(s); // of the rows that it may have now
    d.open = end == s.prompt_tokens()
      ? s.prompt
      : std::make_shared<const std::vector<token_id>>(s.tokens.begin(), s.tokens.begin() + end);
    const auto rotation = static_cast<std::uint64_t>(rotation_of(s.known()));
    d.salt = salted(s.salt(), rotation > 0 ? rotation_salt + rotation : 0);
    d.from = s.scored; // the rows of tokens to be scored must be computed
    // Leave a block per running sequence, so that the new one is not preempted again at once.
    d.watermark = static_cast<std::int32_t>(running_.size());
  }
  if (scoring(s))
    extra_logits_ -= std::max(s.planned + rows - std::max(s.planned, s.scored), 0);
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
    slots_promised_ -= s->slots_needed();
    starved_ = true;
    return;
  }
  // For a decoding sequence, the least important one is preempted, perhaps itself; for a prompt under way, only a
  // paused one. One victim serves all refused demands: if that is too little, they are refused again.
  const bool decodes = s->decodes();
  if (!s->running() || s->paused())
    return;
  auto* last = victim();
  if (!decodes && !(last && last->gives_way()))
    return;
  if (next.releases.empty())
    preempt(*last, next);
  if (s->running())
    demand(next, *s, decodes ? 1 : refused.rows);
}

// -- groups -----------------------------------------------------------------------------------------------------------

// A group gets its last rows or none: rows granted to some of it are taken back by their next demand. Returns the
// requests whose groups got none.
std::vector<std::uint64_t> scheduler::apply_groups(const block_grant& grant) {
  std::vector<std::uint64_t> refused;
  for (std::size_t i = 0; i < demands_.size();) {
    const auto request = demands_[i].sequence.request;
    if (!last_rows_.contains(demands_[i].sequence)) {
      ++i;
      continue;
    }
    auto end = i; // demands of a group follow one another
    bool granted = true;
    for (; end < demands_.size() && demands_[end].sequence.request == request; ++end)
      granted = granted && grant.answers[end].rows > 0;
    if (!granted) {
      refused.push_back(request);
      i = end;
      continue;
    }
    if (!groups_.contains(request)) { // cancelled meanwhile
      i = end;
      continue;
    }
    group_demand d{request, {}, nullptr};
    if (!std::exchange(groups_.at(request).sampler_knows, true))
      d.start = start_of(sequences_.at(groups_.at(request).members.front()));
    for (; i < end; ++i) {
      apply(demands_[i], grant.answers[i], grant);
      d.logit_rows.push_back(static_cast<std::int32_t>(draft_->logit_rows.size()));
      draft_->logit_rows.push_back(static_cast<std::int32_t>(draft_->tokens.size()) - 1);
    }
    draft_->groups.push_back(std::move(d));
    groups_.at(request).judging = true;
  }
  return refused;
}

void scheduler::handle_group_refusal(std::uint64_t request, block_request& next) {
  const auto is_ready = [&] {
    const auto g = groups_.find(request); // it may be cancelled, or the victim
    return g != groups_.end() && ready(g->second);
  };
  auto* last = victim(); // none if all have rows in this step
  if (is_ready() && next.releases.empty() && last)
    preempt(*last, next);
  if (is_ready() && last)
    demand_last_rows(next, groups_.at(request).members);
}

// -- the plan ---------------------------------------------------------------------------------------------------------

void scheduler::add_rows(sequence& s, const block_answer& answer, const block_grant& grant) {
  auto& plan = *draft_;
  kernels::sequence_rows rows;
  rows.first_row = static_cast<std::int32_t>(plan.tokens.size());
  rows.rows = answer.rows;
  rows.first_position = s.planned;
  rows.first_block = static_cast<std::int32_t>(plan.block_tables.size());
  rows.length = std::max(s.known(), s.planned + answer.rows);
  if (s.features)
    plan.featured.push_back({s.features, static_cast<std::int32_t>(plan.sequences.size())});
  plan.sequences.push_back(rows);
  auto table = grant.tables.begin() + answer.first_block;
  plan.block_tables.insert(plan.block_tables.end(), table, table + answer.blocks);
  const auto guesses = guesses_.find(s.id);
  for (auto p = s.planned; p < s.planned + answer.rows; ++p) {
    if (p < s.known()) {
      plan.tokens.push_back(s.tokens[static_cast<std::size_t>(p)]);
    } else if (s.samples_in_flight > 0) {
      plan.after_tokens_of = last_sampling_step_;
      plan.tokens.push_back(placeholder(s.slot));
    } else {
      plan.tokens.push_back(guesses->second[static_cast<std::size_t>(p - s.known())]);
    }
  }
  (s.planned >= s.prompt_tokens() && s.planned + answer.rows >= s.known()
     ? counters_.decode_rows
     : counters_.prefill_rows) += static_cast<std::uint64_t>(answer.rows);
  step_budget_.grant(s.planned, answer.rows, !s.decodes());
  add_scores(s, rows.first_row, answer.rows);
  if (s.embeds())
    add_hidden_rows(s, rows.first_row, answer.rows);
  s.planned += answer.rows;
  granted_.insert(s.id);
  if (s.planned < s.known() || s.embeds())
    return;
  if (!s.grouped())
    add_samples(s, s.samples_in_flight > 0 ? 0 : s.planned - s.known());
  else if (auto& g = groups_.at(s.id.request); g.members.size() == 1)
    add_prompt_of_group(s, g);
  else if (!last_rows_.contains(s.id))
    s.planned = s.known() - 1; // of a prompt of one token: admitted by its last row, which is computed again
}

void scheduler::add_scores(sequence& s, std::int32_t first_row, std::int32_t rows) {
  if (!scoring(s))
    return;
  const auto first = std::max(s.planned, s.scored), end = std::min(s.planned + rows, s.prompt_tokens() - 1);
  auto& plan = *draft_;
  if (first < end)
    plan.scores.push_back({s.id.request, first + 1, static_cast<std::int32_t>(plan.logit_rows.size()), end - first,
                           s.params->prompt_logprobs, s.prompt});
  for (auto p = first; p < end; ++p)
    plan.logit_rows.push_back(first_row + p - s.planned);
  s.scored = end == s.prompt_tokens() - 1 ? all : std::max(s.scored, end);
}

void scheduler::add_hidden_rows(sequence& s, std::int32_t first_row, std::int32_t rows) {
  const auto first = std::max(s.planned, s.scored), end = std::min(s.planned + rows, s.last_row);
  if (first >= end)
    return;
  auto& plan = *draft_;
  plan.embeds.push_back(
    {s.id.request, first, static_cast<std::int32_t>(plan.hidden_rows.size()), end - first, s.embed, end == s.last_row});
  for (auto p = first; p < end; ++p)
    plan.hidden_rows.push_back(first_row + p - s.planned);
  s.scored = end == s.last_row ? all : end;
}

void scheduler::add_samples(sequence& s, std::int32_t guesses) {
  auto& plan = *draft_;
  const auto logit_row = static_cast<std::int32_t>(plan.logit_rows.size());
  for (auto ahead = guesses; ahead >= 0; --ahead)
    plan.logit_rows.push_back(static_cast<std::int32_t>(plan.tokens.size()) - 1 - ahead);
  if (s.features) {
    plan.featured.back().logit_row = logit_row;
    plan.featured.back().sampled_rows = guesses + 1;
  }
  auto& sample = add_sample(s, logit_row);
  s.guesses = sample.guesses = guesses;
  if (guesses > 0) {
    ++counters_.drafts;
    counters_.draft_tokens += static_cast<std::uint64_t>(guesses);
  }
  // The prompt is computed once; each sibling samples its own first token from the same logits, or waits for a slot.
  for (std::int32_t i = 0; i < s.siblings; ++i) {
    sequence sibling = s;
    sibling.id.index = static_cast<std::uint32_t>(i + 1);
    sibling.siblings = 0;
    sibling.sibling_slots.clear();
    sibling.samples_in_flight = 0;
    sibling.sampler_knows = false;
    if (i >= std::ssize(s.sibling_slots)) {
      sibling.slot = -1;
      sibling.planned = sibling.committed = 0;
      demanded_.insert(sibling.id); // from the next step on, so that it finds the prompt's blocks
      add(std::move(sibling));
      continue;
    }
    sibling.slot = s.sibling_slots[static_cast<std::size_t>(i)];
    auto& stored = add(std::move(sibling));
    later_.forks.push_back({s.id, stored.id});
    demanded_.insert(stored.id);
    granted_.insert(stored.id);
    add_sample(stored, logit_row);
  }
  s.siblings = 0;
  s.sibling_slots.clear();
}

sample_demand& scheduler::add_sample(sequence& s, std::int32_t logit_row) {
  sample_demand d{s.id, s.slot, logit_row, nullptr};
  d.guided = s.guide != nullptr;
  if (!s.sampler_knows)
    d.start = start_of(s);
  s.sampler_knows = true;
  ++s.samples_in_flight;
  return draft_->samples.emplace_back(std::move(d));
}

// The slots kept for the sequences to be forked from the prompt are theirs from now on.
void scheduler::add_prompt_of_group(sequence& s, group& g) {
  auto& plan = *draft_;
  plan.groups.push_back({s.id.request, {static_cast<std::int32_t>(plan.logit_rows.size())}, nullptr});
  plan.logit_rows.push_back(static_cast<std::int32_t>(plan.tokens.size()) - 1);
  if (!std::exchange(g.sampler_knows, true))
    plan.groups.back().start = start_of(s);
  g.judging = true;
}

std::shared_ptr<const sampling_start> scheduler::start_of(const sequence& s) const {
  return std::make_shared<const sampling_start>(
    sampling_start{s.params, s.prompt, std::vector<token_id>(s.tokens.begin() + s.prompt_tokens(), s.tokens.end()),
                   s.guide, s.mirostat_mu});
}

// Nothing could be planned and nothing in flight will change that: preempts the least important sequence.
void scheduler::break_deadlock(block_request& next) {
  const auto incomplete = [this](auto& entry) { // waits for slots of its other sequences
    const auto& s = *entry.second;
    return s.grouped() && !s.paused() && !ready(groups_.at(s.id.request));
  };
  const auto late = [this](auto& entry) { // its tokens will change that
    const auto& s = *entry.second;
    return s.grouped() ? groups_.at(s.id.request).deferred : s.deferred;
  };
  if (!granted_.empty() || steps_in_flight_ > 0 || running_.empty() || std::ranges::any_of(running_, late) ||
      (demanded_.empty() && std::ranges::none_of(running_, incomplete)))
    return;
  preempt(*victim(), next);
  demanded_.clear();
  last_rows_.clear();
  starved_ = false;
  demand_rows(next);
}

std::shared_ptr<const step_plan> scheduler::finish_draft() {
  auto plan = std::exchange(draft_, std::nullopt);
  if (plan->tokens.empty())
    return nullptr;
  changed();
  plan->step = ++last_step_;
  plan->ended = std::exchange(ended_, {});
  plan->moves = std::exchange(moves_, {});
  if (!plan->samples.empty())
    last_sampling_step_ = plan->step;
  if (proposer_) {
    const auto with = shape_of(*plan);
    auto without = with;
    without -= guesses_of(*plan);
    guessed_steps_.push_back({{static_cast<int>(without.rows), static_cast<int>(plan->samples.size())}, without, with});
  }
  ++steps_in_flight_;
  ++counters_.steps;
  return std::make_shared<const step_plan>(std::move(*plan));
}

} // namespace troupe
