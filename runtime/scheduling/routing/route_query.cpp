#include "runtime/scheduling/routing/route_query.hpp"

#include "runtime/scheduling/blocks/block_chain.hpp"
#include "runtime/scheduling/lengths/expected_answer.hpp"
#include "runtime/scheduling/planning/scheduler.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// Decides like scheduler::submit.
std::int32_t most_cached(const admission& what, std::int32_t tokens) {
  if (what.asked->embed != pooling::none)
    return what.asked->embed == pooling::last ? tokens - 1 : 0;
  return what.asked->sampling.prompt_logprobs >= 0 && what.resumed.empty() ? 0 : tokens;
}

} // namespace

route_query query_of(const admission& what, bool prefix_cache, std::span<const std::int32_t> rope_borders) {
  const auto& asked = *what.asked;
  const auto& params = asked.sampling;
  auto tokens = asked.prompt;
  route_query q;
  q.sequences = params.width();
  if (!what.resumed.empty()) { // the first answer stands for all
    const auto& first = what.resumed.front().emitted;
    tokens.insert(tokens.end(), first.begin(), first.end());
    for (const auto& other : std::span(what.resumed).subspan(1))
      q.beside += static_cast<std::int32_t>(other.emitted.size());
    q.sequences = static_cast<std::int32_t>(what.resumed.size()) * (params.paired() ? 2 : 1);
  }
  q.tokens = static_cast<std::int32_t>(tokens.size());
  q.beside += static_cast<std::int32_t>(asked.negative_prompt.size());
  if (prefix_cache)
    q.chain = block_chain(tokens,
                          chain_root(asked.features ? asked.features->salt : 0, rotation_of(q.tokens, rope_borders)));
  q.most_cached = most_cached(what, q.tokens);
  q.answered = q.tokens - static_cast<std::int32_t>(asked.prompt.size());
  q.most_answer = asked.embed == pooling::none ? std::max(0, params.max_tokens - q.answered) : 0;
  q.signs = signs_of(asked);
  q.may_move = prefix_cache && q.most_answer > 1 && !params.grouped();
  return q;
}

} // namespace troupe
