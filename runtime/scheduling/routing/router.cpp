#include "runtime/scheduling/routing/router.hpp"

#include "runtime/scheduling/routing/route_costs.hpp"

#include <algorithm>
#include <tuple>

namespace troupe {

void router::stop(int replica) {
  loads_.stop(replica);
  roles_.forget(replica);
}

void router::start(int replica, std::uint64_t life, const capacity& of) {
  roles_.forget(replica);
  loads_.start(replica, life, of);
}

void router::take(const load_report& report) {
  if (loads_.take(report))
    for (const auto& one : report.ended)
      answers_.learn(one);
}

replica_role router::role_of(int replica) const {
  const auto* found = loads_.find(replica);
  return found ? found->of.role : replica_role::any;
}

std::optional<role_change> router::yield_roles(role_balance::time_point now) {
  std::vector<role_balance::work> all;
  for (const auto& [_, r] : loads_.all())
    if (r.home != replica_role::any)
      all.push_back(work_of(r));
  const auto change = roles_.due(all, now);
  if (change)
    loads_.give_role(change->replica, change->to);
  return change;
}

// Prompts queue where the next step does not end all of them; answers, where sequences wait, or where half of them beside
// each other would have their tokens clearly sooner.
role_balance::work router::work_of(const routed_replica& r) const {
  constexpr double clearly = 1.2;
  const auto& load = r.load;
  const auto prompts = load.prompts.rows + r.sent.prompts.rows;
  const auto& [rows, logit_rows, attended, read] = load.decodes;
  const step_shape half{rows / 2, logit_rows / 2, attended / 2, read / 2};
  const auto& cost = loads_.measured(r).cost;
  const bool crowded = rows >= 2 && expected_ms(cost, load.decodes) > clearly * expected_ms(cost, half);
  return {.replica = load.replica,
          .home = r.home,
          .now = r.of.role,
          .prompt_ms = r.prompt_ms,
          .answers = rows > 0 || loads_.coming_to(r) > 0,
          .prompts_queue = prompts > loads_.measured(r).step_rows,
          .answers_queue = crowded || (rows > 0 && load.waiting > 0)};
}

std::optional<route> router::choose(std::uint64_t request, const route_query& query) {
  const auto what = answers_.weighed(query);
  const route_costs costs(loads_, answers_, prompt_ms_);
  std::optional<route> best;
  step_shape prompt;
  std::tuple<bool, double, std::int32_t> best_rank;
  const auto consider = [&](const route& to, const routed_replica& r, const step_shape& own) {
    const std::tuple rank(!r.has_room(), to.ms, r.load.running + r.waiting());
    if (best && best_rank <= rank)
      return;
    best_rank = rank;
    best = to;
    prompt = own;
  };
  for (const auto& [number, r] : loads_.all()) {
    const auto cached = costs.cached_tokens(r, what);
    const auto own = shape_of(cached, what.tokens - cached + what.beside, 1);
    const auto prompt_ms = costs.first_token_ms(r, own, what) + costs.delay_of_others(r, own);
    const bool may_move = r.of.role == replica_role::prefill && what.may_move;
    if (!strict_ ||
        (r.of.role == replica_role::decode ? !loads_.have(replica_role::prefill)
                                           : !may_move || !loads_.have(replica_role::decode)))
      consider({number, cached, prompt_ms + costs.answer_ms(r, own, what)}, r, own);
    if (!may_move)
      continue;
    for (const auto& [other, to] : loads_.all()) {
      if (to.of.role != replica_role::decode)
        continue;
      const auto whole = what.tokens / kernels::block_tokens * kernels::block_tokens;
      const auto copied = (whole - std::min(costs.cached_tokens(to, what), whole)) / kernels::block_tokens;
      const auto rest = shape_of(whole, what.tokens - whole + 1, 1);
      const auto ms = prompt_ms + copied * to.of.block_copy_ms + costs.handover_ms(to, rest, what) +
        costs.answer_ms(to, rest, what);
      consider({number, cached, ms, other}, r, own);
    }
  }
  if (!best)
    return best;
  const auto& at = loads_.at(best->replica);
  const auto prompt_ms = costs.alone_ms(at, prompt);
  if (at.of.role != replica_role::any) { // of the last few requests
    constexpr double share_of_one = 1.0 / 8;
    prompt_ms_ += (prompt_ms - prompt_ms_) * (prompt_ms_ == 0 ? 1 : share_of_one);
  }
  loads_.send(request, best->replica, prompt, prompt_ms, what);
  if (what.most_answer > 0 && what.answered == 0)
    answers_.await(request, what);
  if (best->moves_to >= 0)
    loads_.await(request, best->moves_to, what);
  return best;
}

move_choice router::move(int from, int to, std::uint64_t was, std::uint64_t request, const route_query& query) {
  const auto what = answers_.weighed(query);
  const auto *here = loads_.find(from), *there = loads_.find(to);
  loads_.arrive(was, to);
  loads_.end(was);
  if (!here || !there)
    return {};
  const route_costs costs(loads_, answers_, prompt_ms_);
  const auto cached = costs.cached_tokens(*there, what);
  const auto missing = shape_of(cached, what.tokens - cached + what.beside, 1);
  const auto stay_ms = costs.answer_ms(*here, missing, what);
  const auto move_ms = costs.handover_ms(*there, missing, what) + costs.answer_ms(*there, missing, what);
  if (stay_ms <= move_ms && !strict_)
    return {move_choice::reason::dearer};
  answers_.rename(was, request);
  loads_.send(request, to, missing, costs.alone_ms(*there, missing), what);
  return {move_choice::reason::moves, route{to, cached, move_ms}};
}

} // namespace troupe
