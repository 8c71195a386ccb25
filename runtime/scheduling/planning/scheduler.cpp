#include "runtime/scheduling/planning/scheduler.hpp"

#include "runtime/sampling/sequence_need.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

namespace troupe {

namespace {

constexpr std::uint64_t fewest_learned = 32; // answers

std::string in_words(double ms) {
  return ms < 10'000 ? std::to_string(std::llround(ms)) + " ms" : std::to_string(std::llround(ms / 1000)) + " s";
}

} // namespace

scheduler::scheduler(scheduler_limits limits, std::shared_ptr<guesser> guesses)
  : limits_(std::move(limits)),
    budget_({limits_.step_tokens, limits_.measured_budget, limits_.step_target_ms}),
    guesses_(std::move(guesses), limits_, cost_),
    table_(limits_.max_sequences, guesses_, limits_.recurrent),
    planner_(limits_, table_, guesses_, cost_, budget_),
    booking_(table_, guesses_, lengths_) {}

// -- what clients ask -------------------------------------------------------------------------------------------------

std::optional<error> scheduler::submit(admission a) {
  const auto& asked = *a.asked;
  const auto& params = asked.sampling;
  const auto most = params.grouped() ? std::min(limits_.max_sequences, limits_.step_tokens) : limits_.max_sequences;
  if (auto refused = too_many_sequences(params, most))
    return refused;
  if (const auto together = params.group(); together && together->goes_back && limits_.recurrent)
    return error{errc::unsupported,
                 "`" + std::string(together->field) +
                   "` is not supported by this model: its recurrent layers cannot go back to an earlier token",
                 std::string(together->field)};
  const auto& waiting = table_.waiting();
  if (!a.again && waiting.size() >= static_cast<std::size_t>(limits_.max_queue + table_.free_slots())) {
    const error full{
      errc::overloaded, "the queue is full: " + std::to_string(waiting.size()) + " requests wait already", {}};
    const auto dropped = waiting_last_of_largest(asked.client);
    if (!dropped)
      return full;
    table_.fail(*dropped, full);
  }
  scheduled_sequence s;
  s.id = {a.request, 0};
  s.asked = a.asked;
  s.priority = asked.priority;
  s.tokens = asked.prompt;
  s.last_row = s.known() + params.max_tokens - 1;
  s.siblings = a.resumed.empty() && asked.negative_prompt.empty() ? params.width() - 1 : 0;
  if (params.prompt_logprobs >= 0 && a.resumed.empty())
    s.scored = 0;
  if (s.embeds()) { // the last row matters, too, and for a prompt's first state no other
    s.last_row = asked.embed == pooling::cls ? 1 : s.known();
    s.scored = asked.embed == pooling::last ? s.known() - 1 : 0;
  }
  s.whole = limits_.whole_prompts;
  if (s.whole)
    s.last_row = s.known();
  s.expected_cached = a.expected_cached;
  if (!s.embeds() && params.max_tokens > 0) {
    auto signs = signs_of(asked);
    const auto length = lengths_.predict(signs);
    s.expected = std::make_shared<const expected_answer>(
      expected_answer{std::move(signs), length, lengths_.seen() >= fewest_learned});
  }
  s.moves_to = s.grouped() || s.embeds() ? -1 : a.moves_to;
  auto* group = s.grouped() ? &table_.add_group(a.request) : nullptr;
  if (group)
    group->members = {s.id};
  const auto add = [&](scheduled_sequence one) {
    if (group && !asked.negative_prompt.empty())
      add_twin(one, *group);
    table_.add(std::move(one));
  };
  for (auto& r : a.resumed) {
    auto one = s;
    one.id.index = r.index;
    one.tokens.insert(one.tokens.end(), r.emitted.begin(), r.emitted.end());
    one.mirostat_mu = r.mirostat_mu;
    one.moves_to = &r == &a.resumed.front() ? s.moves_to : -1;
    add(std::move(one));
  }
  if (a.resumed.empty())
    add(std::move(s));
  table_.changed();
  return std::nullopt;
}

// Adds a twin: the same answer after another prompt. Both are judged together; nothing is told of the twin.
void scheduler::add_twin(scheduled_sequence s, sequence_group& g) {
  s.id.index = g.next_index++;
  const auto first = s.prompt_tokens();
  s.twin = true;
  auto tokens = s.prompt();
  tokens.insert(tokens.end(), s.tokens.begin() + first, s.tokens.end());
  s.tokens = std::move(tokens);
  s.last_row += s.prompt_tokens() - first;
  s.scored = scheduled_sequence::all;
  s.announced = true;
  g.members.push_back(s.id);
  table_.add(std::move(s));
}

// The request to give up for one of `newcomer`: that of the client who has most that wait, unless an answer of it has
// begun.
std::optional<std::uint64_t> scheduler::waiting_last_of_largest(const std::string& newcomer) const {
  const auto largest = table_.waiting().largest_beside(newcomer);
  if (!largest)
    return std::nullopt;
  const auto& places = table_.waiting().by_client().at(*largest);
  const auto last = std::find_if(places.rbegin(), places.rend(),
                                 [this](const fair_queue::place& at) { return !table_.at(at.id).announced; });
  return last == places.rend() ? std::nullopt : std::optional(last->id.request);
}

// The work ahead, as turns come: as many requests of each client as of the newcomer's own.
std::vector<expected_work> scheduler::ahead_of(const request& newcomer) const {
  const auto& clients = table_.waiting().by_client();
  const auto first = [&](const std::set<fair_queue::place>& places) {
    return std::ranges::count_if(places, [&](const auto& at) { return at.priority >= newcomer.priority; });
  };
  const auto own = clients.find(newcomer.client);
  const auto turn = 1 + (own == clients.end() ? 0 : first(own->second));
  std::vector<expected_work> all;
  for (const auto& [client, places] : clients) {
    auto left = client == newcomer.client ? turn - 1 : std::min<std::ptrdiff_t>(turn, first(places));
    for (const auto& at : places) {
      if (left-- <= 0)
        break;
      const auto& s = table_.at(at.id);
      const auto cached = std::min(s.expected_cached, s.known() - 1);
      all.push_back(
        {shape_of(cached, s.known() - cached, 1), s.expected && s.expected->learned ? s.left() : 0.0, 1 + s.siblings});
    }
  }
  return all;
}

wait_forecast scheduler::forecast(const admission& a) const {
  load_report now;
  survey_.add_load(now);
  queue_outlook at;
  at.pace = {cost_.summary(), step_rows(), now.decodes};
  at.slots = limits_.max_sequences;
  for (const auto& s : table_.running()) {
    if (s.gives_way())
      continue;
    at.left.push_back(s.expected && s.expected->learned ? s.left() : 0.0);
    if (!s.decodes())
      at.prompts += shape_of(s.planned, s.known() - s.planned, 1);
  }
  at.ahead = ahead_of(*a.asked);
  const auto tokens = static_cast<std::int32_t>(a.asked->prompt.size());
  const auto cached = std::clamp(a.expected_cached, 0, std::max(0, tokens - 1));
  return troupe::forecast(at, {shape_of(cached, tokens - cached, 1), 0, a.asked->sampling.width()});
}

error scheduler::waited_for_long() const {
  return {errc::overloaded,
          "the request has waited for " + in_words(limits_.max_wait_ms) +
            ", the longest that the server lets any wait "
            "(--max-wait)",
          {},
          limits_.max_wait_ms,
          limits_.max_wait_ms};
}

std::optional<error> scheduler::too_late(const admission& a, admission::time_point now) const {
  constexpr auto never = admission::time_point::max();
  const auto by = std::min(a.first_by, a.all_by);
  if (a.again || (limits_.max_wait_ms <= 0 && by == never))
    return std::nullopt;
  const auto expected = forecast(a);
  const auto refused = [&](const std::string& why, const char* field, double ms, double allowed) {
    return error{errc::overloaded, why, field, expected.start_ms, std::max(1.0, ms - allowed)};
  };
  if (limits_.max_wait_ms > 0 && expected.start_ms > limits_.max_wait_ms)
    return refused("the request would wait for about " + in_words(expected.start_ms) +
                     ", and the server lets none wait for more than " + in_words(limits_.max_wait_ms) + " (--max-wait)",
                   "", expected.start_ms, limits_.max_wait_ms);
  if (by == never)
    return std::nullopt;
  const auto left = std::chrono::duration<double, std::milli>(by - now).count();
  if (left > 0 && expected.first_token_ms > left) // one whose time is over is told so
    return refused("the first token would come in about " + in_words(expected.first_token_ms) +
                     ", and the request allows " + in_words(std::max(0.0, left)),
                   a.first_by <= a.all_by ? "ttft_timeout" : "timeout", expected.first_token_ms, left);
  return std::nullopt;
}

void scheduler::finish(sequence_id id) {
  if (table_.find_group(id.request))
    table_.cancel(id.request);
  else
    booking_.stopped(id);
}

std::vector<std::uint64_t> scheduler::pause(std::uint64_t request, bool paused) {
  return table_.pause(request, paused, static_cast<std::size_t>(limits_.max_queue + limits_.max_sequences));
}

// -- what became of a step --------------------------------------------------------------------------------------------

void scheduler::finished(const step_result& result, double ms, double computed_ms) {
  booking_.book(result);
  guesses_.take_states(result);
  guesses_.finished(ms, computed_ms);
  planner_.finished(result, ms, computed_ms);
  for (const auto id : result.deferred)
    booking_.defer(id);
}

bool scheduler::wants_masks(const step_plan& plan) {
  return std::ranges::any_of(plan.samples, &sample_demand::constrained) ||
    std::ranges::any_of(plan.groups, [](const group_demand& d) { return d.start && d.start->asked->follows; });
}

std::string scheduler::observe(const step_shape& step, double ms) {
  cost_.observe(step, ms);
  return budget_.news(cost_);
}

scheduler_counters scheduler::counters() const {
  scheduler_counters c;
  survey_.count(c);
  planner_.count(c);
  booking_.count(c);
  c.step_rows = static_cast<std::uint64_t>(step_rows());
  c.cost = cost_.summary();
  return c;
}

load_report scheduler::load() const {
  load_report r;
  survey_.add_load(r);
  r.queue_room = limits_.max_queue + r.free_slots - static_cast<std::int32_t>(table_.waiting().size());
  r.step_rows = step_rows();
  r.cost = cost_.summary();
  scheduler_counters counted;
  booking_.count(counted);
  r.generated_tokens = counted.generated_tokens;
  return r;
}

} // namespace troupe
