#include "runtime/scheduling/routing/router.hpp"

#include "runtime/scheduling/cost/step_budget.hpp"

#include <cmath>
#include <tuple>

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

void router::start(int replica, std::uint64_t life, const capacity& of) {
  stop(replica);
  load_report idle;
  idle.replica = replica;
  idle.life = life;
  idle.free_slots = of.slots;
  idle.queue_room = of.queue + of.slots;
  idle.free_blocks = of.blocks;
  idle.step_rows = of.step_rows;
  for (std::size_t i = 0; i < step_cost::knots.size(); ++i) // before any step was measured anywhere, rows count
    idle.cost.knot_ms[i] = step_cost::knots[i];
  replicas_.emplace(
    replica,
    replica_state{
      .load = std::move(idle), .of = of, .prefixes = {static_cast<std::size_t>(of.blocks), of.bytes}, .home = of.role});
}

void router::stop(int replica) {
  replicas_.erase(replica);
  roles_.forget(replica);
  std::erase_if(sent_, [=](const auto& entry) { return entry.second.replica == replica; });
  std::erase_if(coming_, [=](const auto& entry) { return entry.second.replica == replica; });
}

void router::take(const load_report& report) {
  const auto found = replicas_.find(report.replica);
  if (found == replicas_.end() || found->second.load.life != report.life)
    return;
  for (const auto request : report.received)
    forget_sent(request);
  auto& load = found->second.load;
  const auto unmeasured = std::exchange(load, report);
  for (const auto& one : load.ended)
    learn(one);
  load.received.clear();
  load.ended.clear();
  if (load.cost.steps == 0) {
    load.cost = unmeasured.cost;
    load.step_rows = unmeasured.step_rows;
  }
}

void router::end(std::uint64_t request) {
  forget_sent(request);
  coming_.erase(request);
}

void router::forget_sent(std::uint64_t request) {
  const auto found = sent_.find(request);
  if (found == sent_.end())
    return;
  const auto& [replica, prompt, sequences] = found->second;
  auto& sent = replicas_.at(replica).sent;
  sent.prompts -= prompt;
  sent.sequences -= sequences;
  --sent.requests;
  sent_.erase(found);
}

bool router::runs(replica_role role) const {
  return std::ranges::any_of(replicas_, [role](auto& entry) { return entry.second.of.role == role; });
}

replica_role router::role_of(int replica) const {
  const auto found = replicas_.find(replica);
  return found == replicas_.end() ? replica_role::any : found->second.of.role;
}

std::optional<role_change> router::yield_roles(role_balance::time_point now) {
  std::vector<role_balance::work> all;
  for (const auto& [_, r] : replicas_)
    if (r.home != replica_role::any)
      all.push_back(work_of(r));
  const auto change = roles_.due(all, now);
  if (change)
    replicas_.at(change->replica).of.role = change->to;
  return change;
}

// Prompts queue where the next step does not end all of them; answers, where sequences wait, or where half of them beside
// each other would have their tokens clearly sooner.
role_balance::work router::work_of(const replica_state& r) const {
  constexpr double clearly = 1.2;
  const auto& load = r.load;
  const auto prompts = load.prompts.rows + r.sent.prompts.rows;
  const auto coming = std::ranges::count(coming_, load.replica, [](auto& each) { return each.second.replica; });
  const auto& [rows, logit_rows, attended, read] = load.decodes;
  const step_shape half{rows / 2, logit_rows / 2, attended / 2, read / 2};
  const auto& cost = measured(r).cost;
  const bool crowded = rows >= 2 && expected_ms(cost, load.decodes) > clearly * expected_ms(cost, half);
  return {.replica = load.replica,
          .home = r.home,
          .now = r.of.role,
          .prompt_ms = r.prompt_ms,
          .answers = rows > 0 || coming > 0,
          .prompts_queue = prompts > measured(r).step_rows,
          .answers_queue = crowded || (rows > 0 && load.waiting > 0)};
}

bool router::has_room() const {
  return std::ranges::any_of(replicas_, [](auto& entry) { return has_room(entry.second); });
}

replica_pace router::pace_of(const replica_state& r) const {
  const auto& known = measured(r);
  return {known.cost, known.step_rows, r.load.decodes};
}

// Replicas are alike, so one that has measured nothing yet costs what another does.
const load_report& router::measured(const replica_state& r) const {
  if (r.load.cost.steps > 0)
    return r.load;
  const auto other = std::ranges::find_if(replicas_, [](auto& entry) { return entry.second.load.cost.steps > 0; });
  return other == replicas_.end() ? r.load : other->second.load;
}

// Before any has ended: as long as it may become.
router::asked_for router::weighed(const route_query& what) const {
  const double most = what.most_answer;
  if (lengths_.scores().answers == 0 || what.most_answer <= 0)
    return {what, most, most};
  const auto length = lengths_.predict(what.signs);
  return {what, std::min(most, length.mean_left(what.answered)),
          std::min(most, length.quantile_left(0.8, what.answered))};
}

// The oldest are forgotten first: of requests whose ends were never reported.
void router::await(std::uint64_t request, const route_query& what) {
  constexpr std::size_t most = 1 << 14;
  awaited_.insert_or_assign(request, expected_answer{what.signs, lengths_.predict(what.signs)});
  if (awaited_.size() > most)
    awaited_.erase(awaited_.begin());
}

void router::learn(const ended_answer& ended) {
  const auto found = awaited_.find(ended.request);
  if (found == awaited_.end())
    return;
  lengths_.learn(found->second.signs, ended.tokens, ended.cut, found->second.length);
  awaited_.erase(found);
}

// Sequences that must end before more can start: those that are expected to end first.
double router::wait_ms(const replica_state& r, double rows, std::int32_t sequences) const {
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

double router::first_token_ms(const replica_state& r, const step_shape& prompt, const asked_for& what) const {
  const auto prompts = r.load.prompts + r.sent.prompts + prompt;
  return prefill_ms(pace_of(r), prompts) + wait_ms(r, prompts.rows, r.load.waiting + r.sent.sequences + what.sequences);
}

double router::answer_ms(const replica_state& r, const step_shape& prompt, const asked_for& what) const {
  const auto at = pace_of(r);
  const auto starting = r.load.waiting + r.sent.sequences + what.sequences;
  const auto beside = std::max(1, std::min(r.load.running + starting, r.of.slots));
  if (r.of.role == replica_role::any)
    return (lengths_.scores().answers == 0 ? 0 : what.answer) * decode_ms(at, beside, prompt.read);
  const auto answer = what.answer;
  if (r.of.role == replica_role::decode)
    return answer * decode_ms(at, beside, prompt.read);
  // Prompts that are computed meanwhile come between its tokens: whenever some can be, as long as others have room for
  // the answer, else as many as recent requests had.
  const auto token_ms = decode_ms(at, r.load.decodes.rows + what.sequences, prompt.read);
  const bool is_needed = std::ranges::none_of(replicas_, [&](auto& each) {
    const auto& other = each.second;
    return other.of.role == replica_role::decode &&
      wait_ms(other, what.tokens, other.load.waiting + other.sent.sequences + what.sequences) == 0;
  });
  const auto busy = is_needed ? prompt_ms_ / std::max(1e-9, prompt_ms_ + answer * token_ms) : 1.0;
  return answer * std::lerp(token_ms, std::max(token_ms, expected_ms(at.cost, {.rows = double(at.step_rows)})), busy);
}

/// What a prompt adds to the steps of those that decode there, or are about to, for each of them. One at least: the
/// next one is never far.
double router::delay_of_others(const replica_state& r, const step_shape& prompt) const {
  if (r.of.role != replica_role::decode)
    return 0;
  const auto coming = std::ranges::count(coming_, r.load.replica, [](auto& each) { return each.second.replica; });
  const auto others = std::max(1.0, r.load.decodes.rows + static_cast<double>(coming));
  const auto at = pace_of(r);
  const auto room = std::max<double>(at.step_rows - at.decodes.rows, step_budget::least_prompt_rows);
  const auto steps = std::max(1.0, std::ceil(prompt.rows / room));
  const auto without = at.decodes.rows > 0 ? expected_ms(at.cost, at.decodes) : 0;
  return others * std::max(0.0, prefill_ms(at, prompt) - steps * without);
}

/// What a move costs: its blocks are copied, and what is missing is computed there. It is to have room for its answer,
/// too, beside what those that run there will take.
double router::handover_ms(const replica_state& to, const step_shape& missing, const asked_for& what) const {
  const auto waiting = to.load.waiting + to.sent.sequences + what.sequences;
  return prefill_ms(pace_of(to), to.load.prompts + to.sent.prompts + missing) + delay_of_others(to, missing) +
    wait_ms(to, what.tokens + what.long_answer + to.load.growth, waiting);
}

std::int32_t router::cached_tokens(const replica_state& r, const route_query& what) const {
  const auto known = static_cast<std::int32_t>(r.prefixes.known(what.chain)) * kernels::block_tokens;
  return std::clamp(std::min(known, what.most_cached), 0, std::max(what.tokens - 1, 0));
}

// A prompt, beside no answers.
double router::alone_ms(const replica_state& r, const step_shape& prompt) const {
  auto at = pace_of(r);
  at.decodes = {};
  return prefill_ms(at, prompt);
}

void router::send(std::uint64_t request, int replica, const step_shape& prompt, const route_query& what) {
  auto& chosen = replicas_.at(replica);
  chosen.prefixes.use(what.chain);
  end(request);
  chosen.prompt_ms += alone_ms(chosen, prompt);
  chosen.sent.prompts += prompt;
  chosen.sent.sequences += what.sequences;
  ++chosen.sent.requests;
  sent_.insert_or_assign(request, sent_request{replica, prompt, what.sequences});
}

std::optional<route> router::choose(std::uint64_t request, const route_query& query) {
  const auto what = weighed(query);
  std::optional<route> best;
  step_shape prompt;
  std::tuple<bool, double, std::int32_t> best_rank;
  const auto consider = [&](const route& to, const replica_state& r, const step_shape& own) {
    const std::tuple rank(!has_room(r), to.ms, r.load.running + r.load.waiting + r.sent.sequences);
    if (best && best_rank <= rank)
      return;
    best_rank = rank;
    best = to;
    prompt = own;
  };
  for (const auto& [number, r] : replicas_) {
    const auto cached = cached_tokens(r, what);
    const auto own = shape_of(cached, what.tokens - cached + what.beside, 1);
    const auto prompt_ms = first_token_ms(r, own, what) + delay_of_others(r, own);
    const bool may_move = r.of.role == replica_role::prefill && what.may_move;
    if (!strict_ ||
        (r.of.role == replica_role::decode ? !runs(replica_role::prefill) : !may_move || !runs(replica_role::decode)))
      consider({number, cached, prompt_ms + answer_ms(r, own, what)}, r, own);
    if (!may_move)
      continue;
    for (const auto& [other, to] : replicas_) {
      if (to.of.role != replica_role::decode)
        continue;
      const auto whole = what.tokens / kernels::block_tokens * kernels::block_tokens;
      const auto copied = (whole - std::min(cached_tokens(to, what), whole)) / kernels::block_tokens;
      const auto rest = shape_of(whole, what.tokens - whole + 1, 1);
      const auto ms = prompt_ms + copied * to.of.block_copy_ms + handover_ms(to, rest, what) +
        answer_ms(to, rest, what);
      consider({number, cached, ms, other}, r, own);
    }
  }
  if (!best)
    return best;
  const auto& at = replicas_.at(best->replica);
  if (at.of.role != replica_role::any) { // of the last few requests
    constexpr double share_of_one = 1.0 / 8;
    prompt_ms_ += (alone_ms(at, prompt) - prompt_ms_) * (prompt_ms_ == 0 ? 1 : share_of_one);
  }
  send(request, best->replica, prompt, what);
  if (what.most_answer > 0 && what.answered == 0)
    await(request, what);
  if (best->moves_to >= 0)
    coming_.insert_or_assign(request, coming_request{best->moves_to, what.chain});
  return best;
}

move_choice router::move(int from, int to, std::uint64_t was, std::uint64_t request, const route_query& query) {
  const auto what = weighed(query);
  const auto here = replicas_.find(from), there = replicas_.find(to);
  if (const auto coming = coming_.find(was); coming != coming_.end() && there != replicas_.end())
    there->second.prefixes.use(coming->second.chain); // and no sooner: others may have the same prompt
  end(was);
  if (auto awaited = awaited_.extract(was)) {
    awaited.key() = request;
    awaited_.insert(std::move(awaited));
  }
  if (here == replicas_.end() || there == replicas_.end())
    return {};
  const auto cached = cached_tokens(there->second, what);
  const auto missing = shape_of(cached, what.tokens - cached + what.beside, 1);
  const auto stay_ms = answer_ms(here->second, missing, what);
  const auto move_ms = handover_ms(there->second, missing, what) + answer_ms(there->second, missing, what);
  if (stay_ms <= move_ms && !strict_)
    return {move_choice::reason::dearer};
  send(request, to, missing, what);
  return {move_choice::reason::moves, route{to, cached, move_ms}};
}

} // namespace troupe
