#include "runtime/execution/constrained_sampler.hpp"

#include "runtime/execution/host_judge.hpp"

#include "runtime/support/error.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace troupe {

std::shared_ptr<const sampling_params> constrained_params(const sampling_params& p) {
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

void constrained_sampler::prepare(const step_plan& plan) {
  if (plan.step > 0 && std::exchange(prepared_, plan.step) == plan.step)
    return;
  for (const auto& demand : plan.samples) {
    if (!demand.constrained)
      continue;
    auto found = sequences_.find(demand.sequence);
    if (const auto& start = demand.start; start && (found == sequences_.end() || found->second.start != start)) {
      sequence s{start,
                 sequence_sampler(constrained_params(start->asked->sampling), how_->eos_ids, start->asked->prompt,
                                  start->emitted, demand.sequence.index, start->mirostat_mu),
                 constrained_text(how_->workers, *start, how_->eos_ids)};
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

bool constrained_sampler::lacks_masks(const step_plan& plan) const {
  bool lacks = false;
  for (const auto& demand : plan.samples)
    if (const auto found = sequences_.find(demand.sequence); demand.constrained && found != sequences_.end())
      lacks |= found->second.text.lacks_any(how_->late);
  return lacks;
}

void constrained_sampler::draw_ahead(const sample_demand& demand, const rows_fn& rows, std::vector<float>& masked,
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

void constrained_sampler::sample(const step_plan& plan, const sample_demand& demand, const rows_fn& rows,
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
void constrained_sampler::walk(const step_plan& plan, const sample_demand& demand, sequence& s,
                               const next_tokens& first, const rows_fn& rows, sampling_scratch& scratch,
                               step_result& result) {
  std::vector<token_id> taken;
  const auto* next = &first;
  const auto draw_from = [&](std::int32_t row) {
    auto token = s.drawn ? *std::exchange(s.drawn, {}) : draw(s, *next, rows(demand.logit_row + row), masked_, scratch);
    taken.push_back(token.id);
    return token;
  };
  const auto has_mask = [&](std::int32_t row) {
    return (next = s.text.after_guess(static_cast<std::size_t>(row) - 1)) != nullptr;
  };
  bool goes_on = take_tokens(plan, demand, draw_from, result, has_mask);
  if (demand.guesses > 0) {
    auto& judged = result.judged.back();
    if (goes_on && next)
      guess_the_rest(demand, judged, [&](std::int32_t i, std::uint64_t ahead) {
        const auto its = rows(demand.logit_row + i);
        return s.sampler.guess(its.logits, ahead, scratch, its.others);
      });
    else if (!demand.parents) // those that were reached
      judged.choices.resize(taken.size());
  } else if (goes_on && append_forced(s, first, demand, scratch, result)) {
    if (!first.forced.empty())
      taken.assign(first.forced.begin(),
                   first.forced.begin() + (s.sampler.params().wants_logprobs() ? 1 : std::ssize(first.forced)));
  } else {
    goes_on = false;
  }
  if (!goes_on) {
    sequences_.erase(demand.sequence);
    return;
  }
  s.text.append(taken);
}

sampled_token constrained_sampler::draw(sequence& s, const next_tokens& next, const judged_logits& row,
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
bool constrained_sampler::append_forced(sequence& s, const next_tokens& next, const sample_demand& demand,
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

void constrained_sampler::collect_late(sampling_scratch& scratch, step_result& result) {
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

void constrained_sampler::end(sequence_id id, const error& why, step_result& result) {
  result.failed.push_back({id, why});
  sequences_.erase(id);
}

} // namespace troupe
