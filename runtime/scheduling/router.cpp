#include "runtime/scheduling/router.hpp"

#include "runtime/scheduling/step_budget.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace troupe {

namespace {

constexpr double block_rows = kernels::block_tokens;

/// What steps cost on a replica, and how many rows they have.
struct pace {
  step_cost_summary cost;
  std::int32_t step_rows = 0;
  step_shape decodes = {};
};

/// `prompts` in as many steps as they take beside what decodes.
double prefill_ms(const pace& at, const step_shape& prompts) {
  const auto room = std::max<double>(at.step_rows - at.decodes.rows, step_budget::least_prompt_rows);
  const auto full_steps = std::max(0.0, std::ceil(prompts.rows / room) - 1);
  const auto step_of = [&](double rows) { return expected_ms(at.cost, at.decodes + step_shape{.rows = rows}); };
  const auto contexts = prompts.logit_rows * at.cost.logit_row_ms + prompts.attended * at.cost.attended_ms +
    prompts.read * at.cost.read_ms;
  return full_steps * step_of(room) + step_of(prompts.rows - full_steps * room) + contexts;
}

/// A step of so many sequences, each at the mean context of those that decode, and of one more.
double decode_ms(const pace& at, double sequences, double context) {
  const auto shape = at.decodes + step_shape{1, 1, context, context};
  const auto mean = shape.read / shape.rows;
  return expected_ms(at.cost, {sequences, sequences, sequences * mean, sequences * mean});
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
    replica_state{.load = std::move(idle), .of = of, .prefixes = {static_cast<std::size_t>(of.blocks), of.bytes}});
}

void router::stop(int replica) {
  replicas_.erase(replica);
  std::erase_if(sent_, [=](const auto& entry) { return entry.second.replica == replica; });
}

void router::take(const load_report& report) {
  const auto found = replicas_.find(report.replica);
  if (found == replicas_.end() || found->second.load.life != report.life)
    return;
  for (const auto request : report.received)
    end(request);
  auto& load = found->second.load;
  const auto unmeasured = std::exchange(load, report);
  load.received.clear();
  if (load.cost.steps == 0) {
    load.cost = unmeasured.cost;
    load.step_rows = unmeasured.step_rows;
  }
}

void router::end(std::uint64_t request) {
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

bool router::has_room() const {
  return std::ranges::any_of(replicas_, [](auto& entry) { return has_room(entry.second); });
}

// Replicas are alike, so one that has measured nothing yet costs what another does.
const load_report& router::measured(const replica_state& r) const {
  if (r.load.cost.steps > 0)
    return r.load;
  const auto other = std::ranges::find_if(replicas_, [](auto& entry) { return entry.second.load.cost.steps > 0; });
  return other == replicas_.end() ? r.load : other->second.load;
}

// Of answers that end behind any token with the same probability, the likeliest mean: those under way count, too.
double router::mean_answer() const {
  std::uint64_t tokens = 0, ended = 0;
  for (const auto& [_, r] : replicas_) {
    tokens += r.load.generated_tokens;
    ended += r.load.ended_answers;
  }
  return static_cast<double>(tokens) / static_cast<double>(std::max<std::uint64_t>(ended, 1));
}

double router::expected_ms(const replica_state& r, const step_shape& prompt, const route_query& what) const {
  const auto& load = r.load;
  const auto& known = measured(r);
  const pace at{known.cost, known.step_rows, load.decodes};
  const auto answer = mean_answer();
  const auto prompts = load.prompts + r.sent.prompts + prompt;
  const auto starting = load.waiting + r.sent.sequences + what.sequences;
  auto ms = prefill_ms(at, prompts);

  // Sequences that must end before it can start. Each that runs is as likely to be the next.
  const auto available = load.free_blocks + load.cached_blocks;
  const auto short_blocks = prompts.rows / block_rows + starting - available;
  const double short_slots = starting - load.free_slots;
  if (load.running > 0 && (short_blocks > 0 || short_slots > 0)) {
    const auto blocks_each = std::max(1.0, static_cast<double>(r.of.blocks - available) / load.running);
    const auto ends = std::ceil(std::max(short_slots, short_blocks / blocks_each));
    ms += ends * std::max(1.0, answer) * decode_ms(at, load.running, 0) / load.running;
  }
  const auto beside = std::max(1, std::min(load.running + starting, r.of.slots));
  return ms + std::min<double>(answer, what.most_answer) * decode_ms(at, beside, prompt.read);
}

std::optional<route> router::choose(std::uint64_t request, const route_query& what) {
  std::optional<route> best;
  step_shape prompt;
  std::tuple<bool, double, std::int32_t> best_rank;
  for (const auto& [number, r] : replicas_) {
    const auto known = static_cast<std::int32_t>(r.prefixes.known(what.chain)) * kernels::block_tokens;
    const auto cached = std::clamp(std::min(known, what.most_cached), 0, std::max(what.tokens - 1, 0));
    const auto own = shape_of(cached, what.tokens - cached + what.beside, 1);
    const auto ms = expected_ms(r, own, what);
    const std::tuple rank(!has_room(r), ms, r.load.running + r.load.waiting + r.sent.sequences);
    if (best && best_rank <= rank)
      continue;
    best_rank = rank;
    best = route{number, cached, ms};
    prompt = own;
  }
  if (!best)
    return best;
  auto& chosen = replicas_.at(best->replica);
  chosen.prefixes.use(what.chain);
  end(request);
  chosen.sent.prompts += prompt;
  chosen.sent.sequences += what.sequences;
  ++chosen.sent.requests;
  sent_.insert_or_assign(request, sent_request{best->replica, prompt, what.sequences});
  return best;
}

} // namespace troupe
