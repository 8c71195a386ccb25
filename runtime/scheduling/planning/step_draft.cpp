#include "runtime/scheduling/planning/step_draft.hpp"

#include "runtime/scheduling/planning/guess_trees.hpp"

#include <algorithm>

namespace troupe {

void step_draft::begin_without() {
  rows_ = 0;
  promises_.clear();
  slots_promised_ = 0;
  demanded_.clear();
  last_rows_.clear();
  granted_.clear();
  prompt_rows_.clear();
  demands_.clear();
}

void step_draft::begin(std::int32_t rows, std::uint64_t number) {
  begin_without();
  plan_.emplace();
  rows_ = rows;
  number_ = number;
  extra_logits_ = extra_logit_rows;
}

void step_draft::demand(block_demand d, std::int32_t logits) {
  extra_logits_ -= logits;
  demanded_.insert(d.sequence);
  demands_.push_back(std::move(d));
}

void step_draft::forget_demands() {
  demanded_.clear();
  last_rows_.clear();
  starved_ = false;
}

std::int32_t step_draft::rows_left() const {
  auto left = rows_;
  for (auto& d : demands_)
    left -= d.rows + d.branches;
  return left;
}

void step_draft::add_rows(const scheduled_sequence& s, const block_answer& answer, const block_grant& grant,
                          std::span<const token_id> guesses) {
  auto& plan = *plan_;
  kernels::sequence_rows rows;
  rows.first_row = static_cast<std::int32_t>(plan.tokens.size());
  rows.rows = answer.rows;
  rows.first_position = s.planned;
  rows.first_block = static_cast<std::int32_t>(plan.block_tables.size());
  rows.length = std::max(s.known(), s.planned + answer.rows);
  rows.second = s.asked->second;
  if (s.asked->features)
    plan.featured.push_back({s.asked->features, static_cast<std::int32_t>(plan.sequences.size())});
  for (const auto& save : answer.saves)
    plan.saves.push_back(
      {static_cast<std::int32_t>(plan.sequences.size()), save.position - rows.first_position, save.slot});
  plan.states.push_back(
    {s.slot, s.samples_in_flight > 0 ? 0 : std::max(rows.first_position + rows.rows - s.known(), 0), s.right_guesses});
  plan.sequences.push_back(rows);
  const auto table = grant.tables.begin() + answer.first_block;
  plan.block_tables.insert(plan.block_tables.end(), table, table + answer.blocks);
  for (auto p = s.planned; p < s.planned + answer.rows; ++p) {
    if (p < s.known()) {
      plan.tokens.push_back(s.tokens[static_cast<std::size_t>(p)]);
    } else if (s.samples_in_flight > 0) {
      plan.after_tokens_of = std::max(plan.after_tokens_of, s.sampled_in);
      plan.tokens.push_back(placeholder(s.slot));
    } else {
      plan.tokens.push_back(guesses[static_cast<std::size_t>(p - s.known())]);
    }
  }
  rows_ -= answer.rows;
  mark_granted(s.id);
}

std::shared_ptr<const kernels::tree_lines> step_draft::add_tree(const scheduled_sequence& s, const block_answer& answer,
                                                                const block_grant& grant, const guess_run& guesses) {
  auto& plan = *plan_;
  const auto known = s.known() - s.planned, rows = known + static_cast<std::int32_t>(guesses.tokens.size());
  kernels::sequence_rows all;
  all.first_row = static_cast<std::int32_t>(plan.tokens.size());
  all.rows = rows;
  all.first_position = s.planned;
  all.length = s.planned + answer.rows;
  all.second = s.asked->second;
  const std::span table(grant.tables.begin() + answer.first_block, static_cast<std::size_t>(answer.blocks));
  auto tree = std::make_shared<const kernels::tree_lines>(
    kernels::lines_of({all, row_parents(known, guesses.parents), table}));
  for (const auto& save : answer.saves)
    plan.saves.push_back({static_cast<std::int32_t>(plan.sequences.size()), save.position - s.planned, save.slot});
  for (auto line : tree->lines) {
    line.first_block += static_cast<std::int32_t>(plan.block_tables.size());
    if (s.asked->features) // the last of these names the logits of all
      plan.featured.push_back({s.asked->features, static_cast<std::int32_t>(plan.sequences.size())});
    plan.sequences.push_back(line);
    const auto first = line.first_row - all.first_row, parent = tree->parents[static_cast<std::size_t>(first)];
    if (first > 0)
      plan.states.push_back({s.slot, line.rows, tree->path_to(parent, known), true});
    else
      plan.states.push_back({s.slot, line.rows - known, s.right_guesses});
  }
  plan.block_tables.insert(plan.block_tables.end(), tree->tables.begin(), tree->tables.end());
  plan.common.insert(plan.common.end(), tree->common.begin(), tree->common.end());
  for (const auto& copy : tree->before)
    moves_.push_back({block_move::kind::copy, copy.from, copy.to});
  plan.tokens.insert(plan.tokens.end(), s.tokens.end() - known, s.tokens.end());
  plan.tokens.insert(plan.tokens.end(), guesses.tokens.begin(), guesses.tokens.end());
  rows_ -= rows;
  mark_granted(s.id);
  return tree;
}

std::int32_t step_draft::add_scores(const scheduled_sequence& s, std::int32_t rows) {
  const auto first = std::max(s.planned, s.scored), end = std::min(s.planned + rows, s.prompt_tokens() - 1);
  auto& plan = *plan_;
  if (first < end)
    plan.scores.push_back({s.id.request, first + 1, static_cast<std::int32_t>(plan.logit_rows.size()), end - first,
                           s.asked->sampling.prompt_logprobs, prompt_of(s)});
  for (auto p = first; p < end; ++p)
    plan.logit_rows.push_back(plan.sequences.back().first_row + p - s.planned);
  return end == s.prompt_tokens() - 1 ? scheduled_sequence::all : std::max(s.scored, end);
}

std::int32_t step_draft::add_hidden_rows(const scheduled_sequence& s, std::int32_t rows) {
  const auto first = std::max(s.planned, s.scored);
  auto end = std::min(s.planned + rows, s.last_row);
  if (first >= end)
    return s.scored;
  const bool complete = end == s.last_row;
  if (s.whole && s.asked->embed == pooling::cls)
    end = first + 1;
  auto& plan = *plan_;
  plan.embeds.push_back(
    {s.id.request, first, static_cast<std::int32_t>(plan.hidden_rows.size()), end - first, s.asked->embed, complete});
  for (auto p = first; p < end; ++p)
    plan.hidden_rows.push_back(plan.sequences.back().first_row + p - s.planned);
  return complete ? scheduled_sequence::all : end;
}

void step_draft::add_guesser_rows(const scheduled_sequence& s, std::int32_t rows) {
  const auto end = s.planned + rows, first = std::max(s.planned, s.known() - most_state_rows);
  if (first >= end)
    return;
  auto& plan = *plan_;
  plan.for_guesser.push_back({s.id, first, static_cast<std::int32_t>(plan.hidden_rows.size()), end - first,
                              s.samples_in_flight > 0 ? end : s.known()});
  for (auto p = first; p < end; ++p)
    plan.hidden_rows.push_back(static_cast<std::int32_t>(plan.tokens.size()) - end + p);
}

std::int32_t step_draft::add_logits(const scheduled_sequence& s, std::int32_t guesses) {
  auto& plan = *plan_;
  const auto first = static_cast<std::int32_t>(plan.logit_rows.size());
  for (auto ahead = guesses; ahead >= 0; --ahead)
    plan.logit_rows.push_back(static_cast<std::int32_t>(plan.tokens.size()) - 1 - ahead);
  if (s.asked->features) {
    plan.featured.back().logit_row = first;
    plan.featured.back().sampled_rows = guesses + 1;
  }
  return first;
}

std::int32_t step_draft::add_logits() {
  plan_->logit_rows.push_back(static_cast<std::int32_t>(plan_->tokens.size()) - 1);
  return static_cast<std::int32_t>(plan_->logit_rows.size()) - 1;
}

std::optional<step_plan> step_draft::take() {
  auto plan = std::exchange(plan_, std::nullopt);
  if (plan && plan->tokens.empty())
    plan.reset();
  return plan;
}

} // namespace troupe
