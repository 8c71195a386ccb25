#include "runtime/scheduling/planning/step_guesses.hpp"

#include "runtime/scheduling/planning/guess_trees.hpp"

#include <algorithm>
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

void step_guesses::begin(const scheduled_sequence& s) {
  if (guesser_ && s.guesses_help())
    guesser_->begin(s.id, sampling_of(s.asked), s.tokens, s.prompt().size(), s.asked->prediction);
}

void step_guesses::end(const scheduled_sequence& s) {
  if (guesser_ && s.guesses_help())
    guesser_->end(s.id);
}

step_guesses::decoding_step step_guesses::decoding(const sequence_table& table, const row_rules& rules) {
  decoding_step found;
  context_ = 0;
  for (auto& s : table.running()) {
    const auto rows = rules.wanted(s);
    found.step.rows += rows;
    if (rows == 0 || !s.decodes() || !s.guesses_help() || s.siblings > 0)
      continue;
    found.in_flight = found.in_flight || s.samples_in_flight > 0;
    context_ += s.planned;
    found.sequences.push_back(
      {s.id, std::clamp(rules.end_of_rows(s) - s.planned - 1, 0, limits_.most_guesses), limits_.trees});
  }
  found.step.rows = std::min(found.step.rows, limits_.step_tokens);
  found.step.sequences = decoding_ = static_cast<int>(found.sequences.size());
  return found;
}

bool step_guesses::wait(const sequence_table& table, const row_rules& rules) {
  if (!guesser_)
    return false;
  const auto next = decoding(table, rules);
  if (next.sequences.empty())
    return false;
  return guesser_->asked() || (next.in_flight && guesser_->waits(next.step, next.sequences));
}

std::optional<guess_request> step_guesses::ask_guess_model(const sequence_table& table, const row_rules& rules) {
  if (!guesser_)
    return std::nullopt;
  const auto next = decoding(table, rules);
  if (next.sequences.empty() || next.in_flight)
    return std::nullopt;
  return guesser_->collect(next.step, next.sequences, extra_logit_rows);
}

std::int32_t step_guesses::propose(const sequence_table& table, const row_rules& rules, std::int32_t most,
                                   std::int32_t rows) {
  clear();
  if (!guesser_)
    return 0;
  const auto next = decoding(table, rules);
  if (next.sequences.empty() || next.in_flight)
    return 0;
  const auto room = std::min(most, rows - std::min(next.step.rows, rows));
  auto proposals = guesser_->propose(next.step, next.sequences, room);
  std::int32_t taken = 0;
  for (std::size_t i = 0; i < proposals.size(); ++i) {
    fit(proposals[i], std::min(most - taken, limits_.most_guesses), next.sequences[i].most, limits_.trees);
    taken += static_cast<std::int32_t>(proposals[i].tokens.size());
    if (!proposals[i].tokens.empty())
      guesses_.emplace(next.sequences[i].id, std::move(proposals[i]));
  }
  return taken;
}

const guess_run& step_guesses::of(sequence_id id) const {
  static const guess_run none;
  const auto found = guesses_.find(id);
  return found == guesses_.end() ? none : found->second;
}

void step_guesses::planned(const step_plan& plan) {
  if (!guesser_)
    return;
  const auto with = shape_of(plan);
  auto without = with;
  without -= guesses_of(plan);
  in_flight_.push_back({{static_cast<int>(without.rows), static_cast<int>(plan.samples.size())}, without, with});
}

void step_guesses::judged(const scheduled_sequence& s, std::span<const token_id> choices) {
  if (guesser_ && s.running())
    guesser_->judged(s.id, choices);
}

void step_guesses::append(const scheduled_sequence& s, token_id token) {
  if (guesser_ && s.running())
    guesser_->append(s.id, std::span(&token, 1));
}

void step_guesses::take_states(const step_result& result) {
  for (const auto& of : result.for_guesser)
    guesser_->take_states(of.sequence, of.states, of.known);
}

void step_guesses::finished(double ms, double computed_ms) {
  if (!guesser_ || in_flight_.empty())
    return;
  const auto step = in_flight_.front();
  in_flight_.pop_front();
  const auto certain = [&](const step_shape& s) { return cost_.certain(static_cast<std::int32_t>(s.rows)); };
  const auto plain_ms = cost_.expected_ms(step.without);
  guesser_->finished({step.plain, ms, computed_ms, plain_ms, cost_.expected_ms(step.with) - plain_ms,
                      certain(step.without) && certain(step.with)});
}

step_estimate step_guesses::estimate(int rows) const {
  const step_shape step{.rows = static_cast<double>(rows),
                        .logit_rows = static_cast<double>(rows),
                        .attended = context_ / std::max(decoding_, 1) * rows,
                        .read = context_};
  return {cost_.expected_ms(step), cost_.certain(rows)};
}

} // namespace troupe
