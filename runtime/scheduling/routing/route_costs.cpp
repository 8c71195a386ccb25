#include "runtime/scheduling/routing/route_costs.hpp"

#include "runtime/scheduling/cost/step_budget.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

constexpr double block_rows = kernels::block_tokens;

/// The tokens that each running answer takes until so many have ended. Where more must end than are known, the others
/// follow as the known ones do.
double tokens_until_end(const load_report& load, double ends) {
  if (load.left.empty())
    return ends;
  const auto known = static_cast<double>(load.left.size());
  const auto last = load.left[static_cast<std::size_t>(std::min(ends, known)) - 1];
  return std::max(1.0, last) * std::max(1.0, ends / known);
}

} // namespace

replica_pace route_costs::pace_of(const routed_replica& r) const {
  const auto& known = loads_.measured(r);
  return {known.cost, known.step_rows, r.load.decodes};
}

// Sequences that must end before more can start: those that are expected to end first.
double route_costs::wait_ms(const routed_replica& r, double rows, std::int32_t sequences) const {
  const auto& load = r.load;
  const auto available = load.free_blocks + load.cached_blocks;
  const auto short_blocks = rows / block_rows + sequences - available;
  const double short_slots = sequences - load.free_slots;
  if (load.running == 0 || (short_blocks <= 0 && short_slots <= 0))
    return 0;
  const auto blocks_each = std::max(1.0, static_cast<double>(r.of.blocks - available) / load.running);
  const auto ends = std::max(1.0, std::ceil(std::max(short_slots, short_blocks / blocks_each)));
  const auto tokens = tokens_until_end(load, ends);
  return tokens * decode_ms(pace_of(r), load.running, 0);
}

double route_costs::first_token_ms(const routed_replica& r, const step_shape& prompt, const weighed_query& what) const {
  const auto prompts = r.load.prompts + r.sent.prompts + prompt;
  return prefill_ms(pace_of(r), prompts) + wait_ms(r, prompts.rows, r.waiting() + what.sequences);
}

double route_costs::answer_ms(const routed_replica& r, const step_shape& prompt, const weighed_query& what) const {
  const auto at = pace_of(r);
  const auto starting = r.waiting() + what.sequences;
  const auto beside = std::max(1, std::min(r.load.running + starting, r.of.slots));
  if (r.of.role == replica_role::any)
    return (answers_.known() ? what.answer : 0) * decode_ms(at, beside, prompt.read);
  const auto answer = what.answer;
  if (r.of.role == replica_role::decode)
    return answer * decode_ms(at, beside, prompt.read);
  // Prompts that are computed meanwhile come between its tokens: whenever some can be, as long as others have room for
  // the answer, else as many as recent requests had.
  const auto token_ms = decode_ms(at, r.load.decodes.rows + what.sequences, prompt.read);
  const bool is_needed = std::ranges::none_of(loads_.all(), [&](auto& each) {
    const auto& other = each.second;
    return other.of.role == replica_role::decode && wait_ms(other, what.tokens, other.waiting() + what.sequences) == 0;
  });
  const auto busy = is_needed ? prompt_ms_ / std::max(1e-9, prompt_ms_ + answer * token_ms) : 1.0;
  return answer * std::lerp(token_ms, std::max(token_ms, expected_ms(at.cost, {.rows = double(at.step_rows)})), busy);
}

/// What a prompt adds to the steps of those that decode there, or are about to, for each of them. One at least: the
/// next one is never far.
double route_costs::delay_of_others(const routed_replica& r, const step_shape& prompt) const {
  if (r.of.role != replica_role::decode)
    return 0;
  const auto others = std::max(1.0, r.load.decodes.rows + loads_.coming_to(r));
  const auto at = pace_of(r);
  const auto room = std::max<double>(at.step_rows - at.decodes.rows, step_budget::least_prompt_rows);
  const auto steps = std::max(1.0, std::ceil(prompt.rows / room));
  const auto without = at.decodes.rows > 0 ? expected_ms(at.cost, at.decodes) : 0;
  return others * std::max(0.0, prefill_ms(at, prompt) - steps * without);
}

/// What a move costs: its blocks are copied, and what is missing is computed there. It is to have room for its answer,
/// too, beside what those that run there will take.
double route_costs::handover_ms(const routed_replica& to, const step_shape& missing, const weighed_query& what) const {
  const auto waiting = to.waiting() + what.sequences;
  return prefill_ms(pace_of(to), to.load.prompts + to.sent.prompts + missing) + delay_of_others(to, missing) +
    wait_ms(to, what.tokens + what.long_answer + to.load.growth, waiting);
}

std::int32_t route_costs::cached_tokens(const routed_replica& r, const route_query& what) const {
  const auto known = static_cast<std::int32_t>(r.prefixes.known(what.chain)) * kernels::block_tokens;
  return std::clamp(std::min(known, what.most_cached), 0, std::max(what.tokens - 1, 0));
}

// A prompt, beside no answers.
double route_costs::alone_ms(const routed_replica& r, const step_shape& prompt) const {
  auto at = pace_of(r);
  at.decodes = {};
  return prefill_ms(at, prompt);
}

} // namespace troupe
