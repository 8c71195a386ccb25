#include "runtime/scheduling/planning/row_grants.hpp"

#include "runtime/scheduling/planning/guess_trees.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

std::shared_ptr<const sampling_start> start_of(const scheduled_sequence& s) {
  return std::make_shared<const sampling_start>(
    sampling_start{s.asked, {s.tokens.begin() + s.prompt_tokens(), s.tokens.end()}, s.mirostat_mu});
}

} // namespace

void row_grants::count(scheduler_counters& into) const {
  into.prefill_rows = prefill_rows_;
  into.decode_rows = decode_rows_;
  into.prompt_tokens = prompt_tokens_;
  into.guess_runs = guess_runs_;
  into.guess_trees = guess_trees_;
  into.guess_runs_ahead = guess_runs_ahead_;
  into.guessed_tokens = guessed_tokens_;
}

// -- grants -----------------------------------------------------------------------------------------------------------

void row_grants::apply(const block_demand& asked, const block_answer& answer, const block_grant& grant) {
  auto* s = table_.find(asked.sequence);
  if (!s) { // cancelled meanwhile: return the blocks just opened for it
    if (asked.open)
      table_.notices().release(asked.sequence);
    return;
  }
  if (asked.open)
    admit(*s, answer);
  add_rows(*s, asked, answer, grant);
}

void row_grants::admit(scheduled_sequence& s, const block_answer& answer) {
  const auto cached = answer.first_position;
  draft_.redeem_slots(s.id);
  table_.admit(s);
  table_.reserve_slots(s, shares_.for_siblings(s, draft_.slots_promised()));
  if (answer.snapshot >= 0)
    draft_.add_moves({{block_move::kind::copy_state, answer.snapshot, s.slot}});
  s.planned = cached;
  s.right_guesses = 0;
  s.committed = answer.committed;
  s.rotation = rules_.rotation_of(s.known());
  s.sampler_knows = false;
  if (!std::exchange(s.announced, true)) {
    started_.push_back({s.id.request, cached});
    prompt_tokens_ += s.prompt().size();
  }
}

std::vector<std::uint64_t> row_grants::apply_groups(const std::vector<block_demand>& asked, const block_grant& grant) {
  std::vector<std::uint64_t> refused;
  for (std::size_t i = 0, end = 0; i < asked.size(); i = end) {
    const auto request = asked[i].sequence.request;
    end = i + 1;
    if (!draft_.is_last_row(asked[i].sequence))
      continue;
    bool granted = grant.answers[i].rows > 0;
    for (; end < asked.size() && asked[end].sequence.request == request; ++end) // demands of a group are neighbours
      granted = granted && grant.answers[end].rows > 0;
    auto* g = table_.find_group(request);
    if (!granted)
      refused.push_back(request);
    if (!granted || !g) // refused, or cancelled meanwhile
      continue;
    std::vector<std::int32_t> logit_rows;
    for (auto each = i; each < end; ++each) {
      apply(asked[each], grant.answers[each], grant);
      logit_rows.push_back(draft_.add_logits());
    }
    add_group(*g, request, std::move(logit_rows));
  }
  return refused;
}

// -- what sequences have in the step ----------------------------------------------------------------------------------

void row_grants::add_rows(scheduled_sequence& s, const block_demand& asked, const block_answer& answer,
                          const block_grant& grant) {
  const auto& guesses = guesses_.of(s.id);
  const bool tree = asked.branches > 0 && answer.rows == asked.rows && answer.spare == asked.spare;
  // Where there is not room for all, a tree's first guesses are a line, too.
  auto granted = answer;
  if (!tree && asked.branches > 0)
    granted.rows = std::min(answer.rows, s.known() - s.planned + first_line(guesses));
  s.tree = tree ? draft_.add_tree(s, answer, grant, guesses) : nullptr;
  if (!tree)
    draft_.add_rows(s, granted, grant, guesses.tokens);
  s.right_guesses = 0;
  const auto rows = tree ? answer.rows + asked.branches : granted.rows;
  (s.planned >= s.prompt_tokens() && s.planned + answer.rows >= s.known()
     ? decode_rows_
     : prefill_rows_) += static_cast<std::uint64_t>(rows);
  budget_.grant(s.planned, rows, !s.decodes());
  if (!s.decodes())
    draft_.count_prompt_rows(s.asked->client, rows);
  if (s.scoring())
    s.scored = draft_.add_scores(s, granted.rows);
  if (s.embeds())
    s.scored = draft_.add_hidden_rows(s, granted.rows);
  if (guesses_.want_states(s))
    draft_.add_guesser_rows(s, rows);
  s.planned += granted.rows;
  if (s.planned < s.known() || s.embeds())
    return;
  s.microbatch = rules_.turn();
  if (!s.grouped())
    add_samples(s,
                tree                        ? static_cast<std::int32_t>(guesses.tokens.size())
                  : s.samples_in_flight > 0 ? 0
                                            : s.planned - s.known());
  else if (auto& g = table_.group_of(s); g.members.size() == 1)
    add_group(g, s.id.request, {draft_.add_logits()}); // its prompt
  else if (!draft_.is_last_row(s.id))
    s.planned = s.known() - 1; // of a prompt of one token: admitted by its last row, which is computed again
}

void row_grants::add_samples(scheduled_sequence& s, std::int32_t guesses) {
  const auto logit_row = draft_.add_logits(s, guesses);
  add_sample(s, logit_row, guesses);
  s.guesses = guesses;
  if (guesses > 0) {
    ++guess_runs_;
    guess_trees_ += s.tree != nullptr;
    guess_runs_ahead_ += guesses_.of(s.id).ahead;
    guessed_tokens_ += static_cast<std::uint64_t>(guesses);
  }
  add_siblings(s, logit_row);
}

// The prompt is computed once; each sibling samples its own first token from the same logits, or waits for a slot.
void row_grants::add_siblings(scheduled_sequence& s, std::int32_t logit_row) {
  for (std::int32_t i = 0; i < s.siblings; ++i) {
    auto sibling = s;
    sibling.id.index = static_cast<std::uint32_t>(i + 1);
    sibling.siblings = 0;
    sibling.moves_to = -1;
    sibling.sibling_slots.clear();
    sibling.samples_in_flight = 0;
    sibling.sampler_knows = false;
    draft_.leave_out(sibling.id); // those that wait find the prompt's blocks in the next step
    if (i >= std::ssize(s.sibling_slots)) {
      sibling.slot = -1;
      sibling.planned = sibling.committed = 0;
      table_.add(std::move(sibling));
      continue;
    }
    sibling.slot = s.sibling_slots[static_cast<std::size_t>(i)];
    auto& stored = table_.add(std::move(sibling));
    table_.notices().fork(s, stored, true);
    draft_.mark_granted(stored.id);
    add_sample(stored, logit_row, 0);
  }
  s.siblings = 0;
  s.sibling_slots.clear();
}

void row_grants::add_sample(scheduled_sequence& s, std::int32_t logit_row, std::int32_t guesses) {
  sample_demand d{.sequence = s.id,
                  .slot = s.slot,
                  .logit_row = logit_row,
                  .start = nullptr,
                  .guesses = guesses,
                  .parents = {},
                  .constrained = s.asked->follows != nullptr,
                  .predicted = guesses > 0 && guesses_.of(s.id).predicted};
  if (guesses > 0 && s.tree)
    d.parents = std::make_shared<const std::vector<std::int32_t>>(guesses_.of(s.id).parents);
  if (!std::exchange(s.sampler_knows, true))
    d.start = start_of(s);
  ++s.samples_in_flight;
  s.sampled_in = draft_.number();
  draft_.add_sample(std::move(d));
}

// When the group is its prompt, the slots kept for the sequences to be forked from it are theirs from now on.
void row_grants::add_group(sequence_group& g, std::uint64_t request, std::vector<std::int32_t> logit_rows) {
  group_demand d{.request = request, .logit_rows = std::move(logit_rows), .start = nullptr};
  if (!std::exchange(g.sampler_knows, true))
    d.start = start_of(table_.at(g.members.front()));
  draft_.add_group(std::move(d));
  g.judging = true;
}

} // namespace troupe
