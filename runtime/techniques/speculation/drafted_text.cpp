#include "runtime/techniques/speculation/drafted_text.hpp"

#include "runtime/sampling/sampling_params.hpp"

#include <algorithm>

namespace troupe {

namespace {

constexpr int named_others = 1;             // tokens that the draft model names in place of each guess
constexpr int usual_answer = 256;           // tokens: many requests end before their max_tokens
constexpr double least_catch_up_return = 2; // tokens' time to be gained, over what the draft model's prefill takes

/// Little is known of guesses whose chance the draft model does not tell.
std::vector<offered_guess> offered_by(const guess_answer& answer) {
  std::vector<offered_guess> offered;
  std::vector<bool> followed(answer.guesses.size() + 1); // [guess + 1]
  for (std::size_t i = 0; i < answer.guesses.size(); ++i) {
    constexpr double usual = 0.75;
    const auto chance = i < answer.chances.size() ? static_cast<double>(answer.chances[i]) : usual;
    const auto parent = i < answer.parents.size() ? answer.parents[i] : static_cast<std::int32_t>(i) - 1;
    const bool beside = followed[as_size(parent + 1)];
    followed[as_size(parent + 1)] = true;
    offered.push_back({answer.guesses[i], parent, grade_of(chance, beside)});
  }
  return offered;
}

} // namespace

void drafted_text::gain(std::span<const token_id> tokens) {
  tokens_ += tokens.size();
  if (served_) {
    unsent_.insert(unsent_.end(), tokens.begin(), tokens.end());
    lag_ += tokens.size();
    if (terms_.settings.mtp)
      lag_ = std::min<std::size_t>(lag_, most_state_rows);
  }
  drawn_.reset();
  if (ahead_) {
    ahead_->came(tokens);
    settle_ahead();
  }
}

bool drafted_text::is_worth_catching_up(const plain_step& step) const {
  const auto& policy = terms_.policy;
  const auto row_ms = terms_.row_ms.value();
  if (lag_ <= guess_terms::little_lag || row_ms == 0 || terms_.settings.forced > 0)
    return true;
  const auto emitted = static_cast<int>(tokens_ - prompt_tokens_);
  const int left = std::min(params_->max_tokens - emitted, usual_answer);
  const auto unit = policy.unit_ms(step, terms_.cost);
  constexpr int guesses = 3;
  const auto tokens = 1 + expected_tokens(policy.acceptance(id_, guess_terms::undrawn, 0), guesses);
  const auto ms = unit + guesses * terms_.pass_ms.value() + policy.added_ms(step, terms_.cost, guesses);
  const auto gained = left * (unit - ms / tokens) / step.sequences;
  return gained > least_catch_up_return * static_cast<double>(lag_) * row_ms;
}

void drafted_text::take_states(const state_rows& states, std::int32_t known, std::span<const std::int32_t> right) {
  auto valid = states;
  const auto of_known = std::min(known, states.end()) - states.position;
  valid.rows = of_known + (states.end() > known ? static_cast<std::int32_t>(right.size()) : 0);
  if (valid.rows <= 0)
    return;
  if (!right.empty() && right.back() >= std::ssize(right) && valid.rows > of_known) { // not the first ones
    const auto values = std::make_shared<std::vector<float>>();
    const auto add = [&](std::int32_t row, std::int32_t rows) {
      const auto* first = states.values.get() + as_size(row) * states.width;
      values->insert(values->end(), first, first + as_size(rows) * states.width);
    };
    add(0, of_known);
    for (const auto guess : right)
      add(of_known + guess, 1);
    valid.values = {values, values->data()};
  }
  states_.push_back(std::move(valid));
  std::erase_if(states_, [&](const state_rows& old) { return old.end() + most_state_rows < states_.back().end(); });
}

guess_demand drafted_text::demand(int guesses) {
  const auto known = tokens_ - unsent_.size();
  return {id_, params_, prompt_tokens_, known, std::exchange(unsent_, {}), guesses, std::exchange(states_, {})};
}

// A line ends, by its chances, where a further guess would not be worth a pass and a row. So more may be asked for than
// are worth their passes on average.
void drafted_text::let_branch(guess_demand& demand, const decoding_sequence& d, const plain_step& step) const {
  const auto& policy = terms_.policy;
  const auto pass_ms = terms_.pass_ms.value();
  demand.others = named_others;
  for (std::size_t grade = 0; grade < drafter::grades; ++grade)
    demand.rates.push_back(static_cast<float>(policy.acceptance(d.id, guess_terms::draft, grade)));
  if (terms_.settings.forced > 0 || pass_ms == 0)
    return;
  const auto pass_and_rows = pass_ms + step.sequences * policy.added_ms(step, terms_.cost, 1);
  demand.least_chance = static_cast<float>(pass_and_rows / policy.unit_ms(step, terms_.cost));
  demand.guesses = std::min({2 * demand.guesses, d.most, terms_.settings.most_guesses});
}

void drafted_text::answered(const guess_answer& answer) {
  if (!unsent_.empty()) // gone on
    return;
  drawn_ = offered_by(answer);
  drawn_ahead_ = false;
  if (!answer.behind)
    lag_ = 0;
}

// -- guesses ahead ----------------------------------------------------------------------------------------------------

std::optional<guess_demand> drafted_text::demand_ahead(std::vector<token_id> line) {
  const auto left = params_->max_tokens - static_cast<int>(tokens_ - prompt_tokens_ + line.size()) - 1;
  const auto& settings = terms_.settings;
  const auto wanted = std::min(left, settings.forced > 0 ? settings.forced : settings.most_guesses);
  if (wanted <= 0)
    return std::nullopt;
  ahead_.emplace(line);
  const auto known = tokens_ - unsent_.size();
  return guess_demand{.sequence = id_,
                      .params = params_,
                      .prompt_tokens = prompt_tokens_,
                      .known = known,
                      .tokens = std::exchange(unsent_, {}),
                      .guesses = wanted + 1,
                      .assumed = std::move(line)};
}

void drafted_text::answered_ahead(const guess_answer& answer) {
  if (!ahead_)
    return;
  ahead_->answered(answer.guesses);
  settle_ahead();
}

// Once tokens have come: guesses of those that follow, or none.
void drafted_text::settle_ahead() {
  if (!ahead_->has_come() || (ahead_->is_open() && !ahead_->is_answered()))
    return;
  const auto rest = ahead_->rest();
  const auto taken = ahead_->taken();
  ahead_.reset();
  const auto pass_ms = terms_.pass_ms.value();
  const auto saved = static_cast<double>(std::min(rest.size(), taken)) * pass_ms;
  const auto under_way = terms_.ahead_request > 0 ? 0.5 * pass_ms : 0; // and has to end before new ones are drawn
  terms_.ahead.saved(rest.empty() ? -under_way : saved);
  if (rest.empty())
    return;
  guess_answer answer;
  answer.guesses = rest;
  drawn_ = offered_by(answer);
  drawn_ahead_ = true;
}

} // namespace troupe
