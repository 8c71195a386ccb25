#include "api/record/record_comparison.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace troupe {

namespace {

bool was_cut(const recorded_answer& one) { return one.finish != "stop" && one.finish != "length"; }

std::optional<record_difference> compare(const recorded_answer& was, const recorded_answer& now,
                                         record_comparison& counts) {
  using kind = record_difference::kind;
  const auto both = std::min(was.ids.size(), now.ids.size());
  for (std::size_t i = 0; i < both; ++i) {
    const bool same = was.ids[i] == now.ids[i];
    if (same)
      counts.largest = std::max(counts.largest, std::abs(double(was.logprobs[i]) - double(now.logprobs[i])));
    if (!same || std::bit_cast<std::uint32_t>(was.logprobs[i]) != std::bit_cast<std::uint32_t>(now.logprobs[i]))
      return record_difference{kind::tokens, 0, 0, i, was.ids[i], now.ids[i], was.logprobs[i], now.logprobs[i]};
    ++counts.tokens;
  }
  if (was.ids.size() == now.ids.size() || (both == was.ids.size() && was_cut(was)) ||
      (both == now.ids.size() && was_cut(now)))
    return std::nullopt;
  record_difference end{kind::ends, 0, 0, both};
  if (both < was.ids.size())
    end.was = was.ids[both], end.was_logprob = was.logprobs[both];
  else
    end.is = now.ids[both], end.is_logprob = now.logprobs[both];
  return end;
}

} // namespace

record_comparison compare(const std::vector<recorded_prompt>& was, const std::vector<recorded_prompt>& now) {
  using kind = record_difference::kind;
  record_comparison result;
  if (was.size() != now.size()) {
    result.first = record_difference{kind::prompts};
    return result;
  }
  for (std::size_t p = 0; p < was.size(); ++p) {
    const auto found = [&](record_difference one, std::size_t answer) {
      one.prompt = p;
      one.answer = answer;
      result.first = one;
      return result;
    };
    const bool cut = std::ranges::any_of(was[p].answers, was_cut);
    if (was[p].tokens != now[p].tokens && was[p].tokens > 0)
      return found({kind::prompts}, 0);
    if (was[p].values != now[p].values && !(cut && !was[p].values))
      return found({kind::values}, 0);
    const auto answers = std::min(was[p].answers.size(), now[p].answers.size());
    for (std::size_t a = 0; a < answers; ++a)
      if (const auto differs = compare(was[p].answers[a], now[p].answers[a], result))
        return found(*differs, a);
    if (was[p].answers.size() != now[p].answers.size() && !cut)
      return found({kind::ends}, answers);
  }
  return result;
}

} // namespace troupe
