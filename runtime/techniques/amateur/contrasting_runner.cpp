#include "runtime/techniques/amateur/contrasting_runner.hpp"

#include "runtime/techniques/amateur/technique.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

/// Places in `sequences` of those whose rows the amateur computes, too.
std::vector<std::int32_t> contrasted_places(const step_plan& plan) {
  std::vector<std::int32_t> result;
  for (const auto& each : plan.featured)
    if (each.features->used.find(amateur_technique))
      result.push_back(each.place);
  return result;
}

} // namespace

contrasting_runner::contrasting_runner(std::unique_ptr<step_runner> expert, std::unique_ptr<step_runner> amateur,
                                       int vocab)
  : expert_(std::move(expert)), amateur_(std::move(amateur)), vocab_(vocab) {}

void contrasting_runner::receive(const step_tokens& tokens) {
  expert_->receive(tokens);
  amateur_->receive(tokens);
}

step_plan amateurs_plan(const step_plan& plan, std::span<const token_id> tokens, token_id vocab,
                        std::vector<std::int32_t>& of) {
  step_plan own;
  own.step = plan.step;
  own.moves = plan.moves;
  own.common = plan.common;
  std::vector<bool> sampled(plan.logit_rows.size());
  for (const auto& demand : plan.samples)
    std::fill_n(sampled.begin() + demand.logit_row, demand.guesses + 1, true);
  std::size_t logit_row = 0; // those of a plan ascend
  for (const auto place : contrasted_places(plan)) {
    const auto& rows = plan.sequences[static_cast<std::size_t>(place)];
    const auto next = static_cast<std::size_t>(place) + 1;
    const auto last_block = next < plan.sequences.size() ? plan.sequences[next].first_block
                                                         : std::ssize(plan.block_tables);
    auto moved = rows;
    moved.first_row = static_cast<std::int32_t>(own.tokens.size());
    moved.first_block = static_cast<std::int32_t>(own.block_tables.size());
    own.sequences.push_back(moved);
    own.block_tables.insert(own.block_tables.end(), plan.block_tables.begin() + rows.first_block,
                            plan.block_tables.begin() + last_block);
    for (auto row = rows.first_row; row < rows.first_row + rows.rows; ++row) {
      const auto token = tokens[static_cast<std::size_t>(row)];
      own.tokens.push_back(token < vocab ? token : 0);
    }
    for (; logit_row < plan.logit_rows.size() && plan.logit_rows[logit_row] < rows.first_row + rows.rows; ++logit_row)
      if (sampled[logit_row] && plan.logit_rows[logit_row] >= rows.first_row) {
        of.push_back(static_cast<std::int32_t>(logit_row));
        own.logit_rows.push_back(plan.logit_rows[logit_row] - rows.first_row + moved.first_row);
      }
  }
  return own;
}

void contrasting_runner::move(std::span<const block_move> moves) {
  expert_->move(moves);
  amateur_->move(moves);
}

step_output contrasting_runner::run(const step_plan& plan, const stage_rows* before) {
  auto output = expert_->run(plan, before);
  if (contrasted_places(plan).empty() && plan.moves.empty())
    return output;
  std::vector<std::int32_t> of;
  const auto own = amateurs_plan(plan, before ? before->tokens : plan.tokens, vocab_, of);
  const auto amateurs = amateur_->run(own);
  output.ms += amateurs.ms;
  auto rows = output.contrast ? std::make_shared<contrast_rows>(*output.contrast) // of inner layers
                              : std::make_shared<contrast_rows>();
  rows->of.resize(plan.logit_rows.size());
  rows->memory.push_back(amateurs.logits);
  for (std::size_t i = 0; i < of.size(); ++i)
    rows->of[static_cast<std::size_t>(of[i])].push_back({amateurs.logits.get() + i * amateurs.vocab, amateurs.vocab});
  output.contrast = std::move(rows);
  return output;
}

} // namespace troupe
