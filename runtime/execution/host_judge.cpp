#include "runtime/execution/host_judge.hpp"

#include "runtime/sampling/stop_matcher.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>

namespace troupe {

std::vector<std::int32_t> depths_of(const sample_demand& demand) {
  std::vector<std::int32_t> depths{0};
  for (std::int32_t guess = 0; guess < demand.guesses; ++guess) {
    const auto before = demand.parents ? (*demand.parents)[static_cast<std::size_t>(guess)] + 1 : guess;
    depths.push_back(depths[static_cast<std::size_t>(before)] + 1);
  }
  return depths;
}

std::vector<std::int32_t> host_judge::rows(const step_plan& plan) {
  std::vector<std::int32_t> all;
  for (const auto& g : plan.groups)
    all.insert(all.end(), g.logit_rows.begin(), g.logit_rows.end());
  for (const auto& s : plan.scores)
    for (std::int32_t i = 0; i < s.tokens; ++i)
      all.push_back(s.logit_row + i);
  return all;
}

void host_judge::judge(const step_plan& plan, const logits_fn& logits, sampling_scratch& scratch, step_result& result) {
  for (const auto& demand : plan.groups)
    judge(demand, logits, scratch, result);
  for (const auto& demand : plan.scores) {
    prompt_scores scores{demand.request, demand.position, {}};
    try {
      for (std::int32_t i = 0; i < demand.tokens; ++i) {
        sampled_token token;
        token.id = (*demand.prompt)[static_cast<std::size_t>(demand.position + i)];
        describe(logits(demand.logit_row + i), static_cast<std::size_t>(demand.top), scratch.tokens, token);
        scores.tokens.push_back(std::move(token));
      }
      result.scores.push_back(std::move(scores));
    } catch (const failure& f) {
      result.failed.push_back({{demand.request, 0}, f.what_failed()});
    }
  }
}

void host_judge::prepare(const step_plan& plan) {
  constrained_.prepare(plan);
  for (const auto& demand : plan.groups) {
    const auto& start = demand.start;
    if (!start)
      continue;
    if (const auto known = groups_.find(demand.request); known != groups_.end() && known->second.start == start)
      continue;
    const auto& asked = *start->asked;
    const auto params = asked.follows ? constrained_params(asked.sampling) : sampling_of(start->asked);
    group g{.start = start,
            .strategy = make_group_strategy(params, how_->eos_ids, asked.prompt, start->emitted, start->mirostat_mu,
                                            asked.text)};
    if (asked.follows)
      g.texts.emplace_back(how_->workers, *start, how_->eos_ids);
    groups_.insert_or_assign(demand.request, std::move(g));
  }
}

void host_judge::judge(const group_demand& demand, const logits_fn& logits, sampling_scratch& scratch,
                       step_result& result) {
  const auto found = groups_.find(demand.request);
  if (found == groups_.end())
    return; // it has ended
  auto& g = found->second;
  std::vector<std::span<const float>> members;
  for (const auto row : demand.logit_rows)
    members.push_back(logits(row));
  if (lacks_masks(g)) {
    for (const auto row : members)
      g.rows.emplace_back(row.begin(), row.end());
    return result.deferred.push_back({demand.request, 0});
  }
  decide(found, members, scratch, result);
  if (const auto still = groups_.find(demand.request); still != groups_.end() && still->second.order)
    result.deferred.push_back({demand.request, 0});
}

bool host_judge::lacks_masks(const step_plan& plan) const {
  bool lacks = constrained_.lacks_masks(plan);
  for (const auto& demand : plan.groups)
    if (const auto found = groups_.find(demand.request); found != groups_.end())
      lacks |= lacks_masks(found->second);
  return lacks;
}

bool host_judge::lacks_masks(const group& g) const {
  bool lacks = false;
  for (const auto& text : g.texts)
    lacks |= text.lacks_any(how_->late);
  return lacks;
}

void host_judge::decide(group_map::iterator found, std::span<const std::span<const float>> logits,
                        sampling_scratch& scratch, step_result& result) {
  auto& g = found->second;
  try {
    book(found, g.strategy->judge(logits, masked(g, logits), scratch), result);
  } catch (const failure& f) {
    end(found, f, result);
  }
}

step_result host_judge::settle(const verdict& its) {
  step_result result;
  for (auto g = groups_.begin(); g != groups_.end();) {
    const auto found = g++;
    if (const auto& order = found->second.order; order && (!its.order || order->what == its.order))
      go_on(found, its, result);
  }
  return result;
}

void host_judge::go_on(group_map::iterator found, const verdict& its, step_result& result) {
  auto& g = found->second;
  std::exchange(g.order, nullptr)->what = nullptr;
  try {
    if (its.why)
      throw failure(its.why->code, its.why->message, its.why->param);
    book(found, g.strategy->go_on(its.values), result);
  } catch (const failure& f) {
    end(found, f, result);
  }
}

void host_judge::end(group_map::iterator found, const failure& why, step_result& result) {
  result.failed.push_back({{found->first, 0}, why.what_failed()});
  groups_.erase(found);
}

void host_judge::book(group_map::iterator found, std::vector<group_child> children, step_result& result) {
  const auto request = found->first;
  auto& g = found->second;
  if (const auto awaited = g.strategy->awaited(); !awaited.empty()) {
    g.order = ask(g, awaited);
    return result.at_judge.push_back({request, 0});
  }
  if (!g.texts.empty()) {
    std::vector<constrained_text> texts;
    for (const auto& child : children)
      if (!child.anew.empty())
        texts.push_back(text_of(*g.start, child.anew));
      else if (child.parent < g.texts.size())
        texts.push_back(g.texts[child.parent].fork(child.token));
    g.texts = std::move(texts);
  }
  const bool ended = children.empty();
  const auto* told = g.strategy->told();
  if (ended && !told)
    result.hypotheses.emplace_back(request, g.strategy->results());
  result.groups.push_back({request, std::move(children), told ? std::optional(*told) : std::nullopt});
  if (ended)
    groups_.erase(found);
}

std::unique_ptr<host_judge::open_order> host_judge::ask(const group& g,
                                                        std::span<const std::vector<token_id>> answers) const {
  const auto& asked = *g.start->asked;
  if (!how_->judge.ask || !asked.text)
    throw failure(errc::internal, "nobody can judge the answers of a search");
  const auto& params = asked.sampling;
  auto prompt = params.judged_behind;
  if (!prompt) {
    judged_prompt made;
    for (const auto id : asked.prompt)
      made.text += (*asked.text)(id);
    prompt = std::make_shared<const judged_prompt>(std::move(made));
  }
  std::vector<std::string> texts;
  for (const auto& answer : answers) { // as clients see it, so without a stop string
    stop_matcher matcher(params.stop);
    auto& text = texts.emplace_back();
    for (std::size_t i = 0; i < answer.size(); ++i)
      text += matcher.push((*asked.text)(answer[i]), i + 1 > static_cast<std::size_t>(params.min_tokens)).text;
    text += matcher.finish();
  }
  const auto order = std::make_shared<const judge_order>(judge_order{std::move(prompt), std::move(texts)});
  how_->judge.ask(order);
  return std::make_unique<open_order>(order, how_);
}

constrained_text host_judge::text_of(sampling_start start, const std::vector<token_id>& answer) const {
  start.emitted = answer;
  return constrained_text(how_->workers, start, how_->eos_ids);
}

// The rows with what constraints forbid at minus infinity; the rows themselves without any, and where the sequence
// has none (a twin).
std::vector<std::span<const float>> host_judge::masked(const group& g, std::span<const std::span<const float>> logits) {
  if (g.texts.empty())
    return {logits.begin(), logits.end()};
  std::vector<std::span<const float>> rows;
  masked_.resize(std::max(masked_.size(), logits.size()));
  for (std::size_t i = 0; i < g.texts.size(); ++i) {
    const auto& next = *g.texts[i].next();
    if (next.why)
      throw failure(next.why->code, next.why->message, next.why->param);
    next.apply(logits[i], masked_[i]);
    rows.emplace_back(masked_[i]);
  }
  rows.insert(rows.end(), logits.begin() + std::ssize(rows), logits.end());
  return rows;
}

step_result host_judge::collect_late(sampling_scratch& scratch) {
  step_result result;
  constrained_.collect_late(scratch, result);
  for (auto g = groups_.begin(); g != groups_.end();) {
    const auto found = g++;
    if (found->second.rows.empty() || lacks_masks(found->second))
      continue;
    const auto rows = std::exchange(found->second.rows, {});
    decide(found, std::vector<std::span<const float>>(rows.begin(), rows.end()), scratch, result);
  }
  return result;
}

} // namespace troupe
