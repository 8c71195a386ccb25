#include "runtime/execution/guided_sampler.hpp"

#include "runtime/execution/host_judge.hpp"

#include "runtime/support/error.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace troupe {

std::shared_ptr<const sampling_params> guided_params(const sampling_params& p) {
  auto own = std::make_shared<sampling_params>(p);
  own->min_tokens = 0;
  own->ignore_eos = false;
  return own;
}

namespace {

/// Whether a banned token is likelier than all that may follow.
bool holds_back(const next_tokens& next, std::span<const float> logits, std::span<const float> masked) {
  auto best = -std::numeric_limits<float>::infinity();
  for (const auto id : next.withheld)
    if (static_cast<std::size_t>(id) < logits.size())
      best = std::max(best, logits[static_cast<std::size_t>(id)]);
  return !next.withheld.empty() && best > *std::ranges::max_element(masked);
}

} // namespace

void guided_sampler::prepare(const step_plan& plan) {
  if (plan.step > 0 && std::exchange(prepared_, plan.step) == plan.step)
    return;
  for (const auto& demand : plan.samples) {
    if (!demand.guided)
      continue;
    auto found = sequences_.find(demand.sequence);
    if (const auto& start = demand.start; start && (found == sequences_.end() || found->second.start != start)) {
      sequence s{start,
                 sequence_sampler(guided_params(start->asked->sampling), how_->eos_ids, start->asked->prompt,
                                  start->emitted, demand.sequence.index, start->mirostat_mu),
                 guided_text(how_->workers, *start, how_->eos_ids)};
      found = sequences_.insert_or_assign(demand.sequence, std::move(s)).first;
    }
    if (demand.guesses == 0 || found == sequences_.end())
      continue;
    std::vector<token_id> guesses;
    for (std::int32_t i = 1; i <= demand.guesses; ++i)
      guesses.push_back(plan.token_of(demand.logit_row + i));
    found->second.text.guess(guesses, demand.parents ? *demand.parents : std::vector<std::int32_t>());
  }
}

bool guided_sampler::lacks_masks(const step_plan& plan) const {
  bool lacks = false;
  for (const auto& demand : plan.samples)
    if (const auto found = sequences_.find(demand.sequence); demand.guided && found != sequences_.end())
      lacks |= found->second.text.lacks_any(how_->late);
  return lacks;
}

void guided_sampler::draw_ahead(const sample_demand& demand, const rows_fn& rows, std::vector<float>& masked,
                                sampling_scratch& scratch) {
  const auto found = sequences_.find(demand.sequence);
  if (found == sequences_.end())
    return;
  auto& s = found->second;
  const auto* next = s.text.next();
  if (!next || next->why || !next->forced.empty())
    return;
  try {
    s.drawn = draw(s, *next, rows(demand.logit_row), masked, scratch);
  } catch (const failure&) {
    // `sample` fails, too
  }
}

void guided_sampler::sample(const step_plan& plan, const sample_demand& demand, const rows_fn& rows,
                            sampling_scratch& scratch, step_result& result) {
  const auto found = sequences_.find(demand.sequence);
  if (found == sequences_.end())
    return; // it has ended
  auto& s = found->second;
  try {
    if (const auto* next = s.text.next())
      return walk(plan, demand, s, *next, rows, scratch, result);
    const auto row = rows(demand.logit_row);
    s.row.logits.assign(row.logits.begin(), row.logits.end());
    for (const auto other : row.others)
      s.row.others.emplace_back(other.begin(), other.end());
    deferred_.insert_or_assign(demand.sequence, demand.slot);
    result.deferred.push_back(demand.sequence);
    if (!s.text.lacks_any(how_->late))
      how_->late();
  } catch (const failure& f) {
    end(demand.sequence, f.what_failed(), result);
  }
}

// Takes tokens as long as a row that follows holds the one just taken, and the mask of that row is ready.
void guided_sampler::walk(const step_plan& plan, const sample_demand& demand, sequence& s, const next_tokens& first,
                          const rows_fn& rows, sampling_scratch& scratch, step_result& result) {
  std::vector<token_id> taken, choices(static_cast<std::size_t>(demand.guesses) + 1, -1);
  const auto* next = &first;
  bool goes_on = true, right = true;
  std::int32_t row = 0; // counted from that of the last known token
  while (next) {
    auto token = s.drawn ? *std::exchange(s.drawn, {}) : draw(s, *next, rows(demand.logit_row + row), masked_, scratch);
    taken.push_back(token.id);
    choices[static_cast<std::size_t>(row)] = token.id;
    goes_on = token.finish == sampled_token::finish::none;
    const auto guess = right_guess(plan, demand, row, token.id);
    right = guess.has_value();
    const auto* following = goes_on && right ? s.text.after_guess(static_cast<std::size_t>(*guess) - 1) : nullptr;
    row = following ? *guess : row;
    result.sampled.push_back({demand.sequence, demand.slot, std::move(token), following != nullptr});
    if (!following && goes_on && demand.guesses == 0)
      goes_on = append_forced(s, *next, demand, scratch, result);
    next = following;
  }
  if (demand.guesses > 0) {
    judged_guesses judged{
      demand.sequence, demand.guesses, static_cast<std::int32_t>(taken.size()) - 1, std::move(choices), row,
      demand.predicted};
    if (goes_on && !right)
      guess_the_rest(demand, judged, [&](std::int32_t i, std::uint64_t ahead) {
        const auto its = rows(demand.logit_row + i);
        return s.sampler.guess(its.logits, ahead, scratch, its.others);
      });
    else if (!demand.parents) // those that were reached
      judged.choices.resize(taken.size());
    result.judged.push_back(std::move(judged));
  } else if (!first.forced.empty() && goes_on && taken.size() == 1) {
    taken.assign(first.forced.begin(),
                 first.forced.begin() + (s.sampler.params().wants_logprobs() ? 1 : std::ssize(first.forced)));
  }
  if (!goes_on) {
    sequences_.erase(demand.sequence);
    return;
  }
  s.text.append(taken);
}

sampled_token guided_sampler::draw(sequence& s, const next_tokens& next, const judged_logits& row,
                                   std::vector<float>& masked, sampling_scratch& scratch) {
  if (next.why)
    throw failure(next.why->code, next.why->message, next.why->param);
  if (!next.forced.empty())
    return s.sampler.take(next.forced.front(), row.logits, scratch);
  next.apply(row.logits, masked);
  auto token = s.sampler.sample(row.logits, masked, scratch, row.others);
  token.withheld = holds_back(next, row.logits, masked);
  return token;
}

// The tokens that must follow the one just taken. Their log-probabilities would need rows. Returns whether the sequence
// goes on.
bool guided_sampler::append_forced(sequence& s, const next_tokens& next, const sample_demand& demand,
                                   sampling_scratch& scratch, step_result& result) {
  if (s.sampler.params().wants_logprobs())
    return true;
  for (std::size_t i = 1; i < next.forced.size(); ++i) {
    auto token = s.sampler.take(next.forced[i], {}, scratch);
    const bool last = token.finish != sampled_token::finish::none;
    result.sampled.back().more = true;
    result.sampled.push_back({demand.sequence, demand.slot, std::move(token)});
    if (last)
      return false;
  }
  return true;
}

void guided_sampler::collect_late(sampling_scratch& scratch, step_result& result) {
  for (auto d = deferred_.begin(); d != deferred_.end();) {
    const auto [id, slot] = *d;
    const auto found = sequences_.find(id);
    const auto* next = found == sequences_.end() ? nullptr : found->second.text.next();
    if (found != sequences_.end() && !next) {
      ++d;
      continue;
    }
    d = deferred_.erase(d);
    if (!next)
      continue; // it has ended
    auto& s = found->second;
    const auto row = std::exchange(s.row, {});
    const std::vector<std::span<const float>> others(row.others.begin(), row.others.end());
    try {
      sample_demand demand;
      demand.sequence = id;
      demand.slot = slot;
      walk(
        {}, demand, s, *next, [&](std::int32_t) { return judged_logits(row.logits, others); }, scratch, result);
    } catch (const failure& f) {
      end(id, f.what_failed(), result);
    }
  }
}

void guided_sampler::end(sequence_id id, const error& why, step_result& result) {
  result.failed.push_back({id, why});
  sequences_.erase(id);
}

} // namespace troupe
