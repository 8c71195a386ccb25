#include "runtime/execution/host_judge.hpp"

#include "runtime/support/error.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

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

void host_judge::judge(const group_demand& demand, const logits_fn& logits, sampling_scratch& scratch,
                       step_result& result) {
  if (const auto& start = demand.start)
    groups_.insert_or_assign(demand.request, make_group_strategy(start->params, eos_ids_, start->prompt->size()));
  const auto found = groups_.find(demand.request);
  if (found == groups_.end())
    return; // it has ended
  try {
    std::vector<std::span<const float>> members;
    for (const auto row : demand.logit_rows)
      members.push_back(logits(row));
    auto children = found->second->judge(members, scratch);
    if (children.empty())
      result.hypotheses.emplace_back(demand.request, found->second->results());
    const bool ended = children.empty();
    result.groups.push_back({demand.request, std::move(children)});
    if (ended)
      groups_.erase(found);
  } catch (const failure& f) {
    result.failed.push_back({{demand.request, 0}, f.what_failed()});
    groups_.erase(found);
  }
}

} // namespace troupe
