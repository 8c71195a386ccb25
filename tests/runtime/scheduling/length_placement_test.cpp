// What predictions of answers' lengths are worth: three replicas in virtual time, above their capacity, with requests of
// several kinds, placed and preempted by what was learned, by free blocks alone, and by an oracle. The scheduler, the
// block manager and the router are the real ones; a step takes what its rows cost, and answers have the lengths of a
// seeded mixture.
#include "runtime/scheduling/blocks/block_chain.hpp"
#include "runtime/scheduling/blocks/block_manager.hpp"
#include "runtime/scheduling/planning/scheduler.hpp"
#include "runtime/scheduling/routing/load_reporter.hpp"
#include "runtime/scheduling/routing/router.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

using namespace troupe;

namespace {

enum class knowledge : std::uint8_t { none, learned, oracle };

struct job {
  request_ptr asked;
  std::int32_t length = 0;
  double arrived = 0, started = -1, ended = -1; // ms
};

/// Chats, summaries, code and lists, each kind behind a system prompt of its own; they arrive as a Poisson process.
std::vector<job> jobs_of(unsigned seed, int count, double per_second) {
  struct kind {
    double share, median, spread;
    std::int32_t least_prompt, most_prompt;
  };
  static constexpr kind kinds[] = {
    {5, 30, 0.5, 100, 200}, {2, 120, 0.3, 400, 900}, {1.5, 700, 0.5, 120, 300}, {2, 60, 0.2, 100, 300}};
  std::mt19937 random(seed);
  std::discrete_distribution<std::size_t> which{kinds[0].share, kinds[1].share, kinds[2].share, kinds[3].share};
  std::exponential_distribution<double> gap(per_second / 1000);
  double now = 0;
  std::vector<job> all;
  for (int i = 0; i < count; ++i) {
    const auto k = which(random);
    auto asked = std::make_shared<request>();
    asked->prompt.resize(
      static_cast<std::size_t>(std::uniform_int_distribution(kinds[k].least_prompt, kinds[k].most_prompt)(random)));
    for (std::size_t t = 0; t < asked->prompt.size(); ++t) // 64 tokens are the system prompt's
      asked->prompt[t] = t < 64 ? static_cast<token_id>(1000 * k + t) : static_cast<token_id>(random() % 50'000);
    asked->sampling.max_tokens = 2000;
    asked->arrival = static_cast<std::uint64_t>(i);
    now += gap(random);
    const auto length = std::lognormal_distribution<double>(std::log(kinds[k].median), kinds[k].spread)(random);
    all.push_back({asked, std::clamp(static_cast<std::int32_t>(length), 1, 2000), now});
  }
  return all;
}

/// A replica whose steps take 8 ms, and 0.05 ms for each row.
class replica {
public:
  static constexpr std::int32_t blocks = 300;

  explicit replica(int number)
    : sched({.step_tokens = 256, .max_sequences = 32, .max_queue = 100'000, .steps_ahead = 1}),
      reporter_(number, 1, blocks),
      manager_(blocks, true) {}

  void submit(std::uint64_t number, const job& what) {
    admission a;
    a.request = number;
    a.asked = what.asked;
    CHECK_FALSE(sched.submit(std::move(a)));
    reporter_.received(number);
  }

  /// Plans the next step, if there is one, which ends at `ends`.
  void begin(double now, std::map<std::uint64_t, job>& jobs) {
    if (result_ || !sched.wants_step())
      return;
    scheduler::next next = sched.begin_step();
    while (auto* wanted = std::get_if<block_request>(&next)) {
      const auto grant = manager_.serve(*wanted);
      reporter_.granted(grant);
      next = sched.granted(grant);
    }
    for (const auto& started : sched.collect_started())
      if (auto& one = jobs.at(started.request); one.started < 0)
        one.started = now;
    auto* plan = std::get_if<std::shared_ptr<const step_plan>>(&next);
    if (!plan)
      return;
    const auto& p = **plan;
    const auto ms = 8 + 0.05 * static_cast<double>(p.tokens.size());
    result_.emplace();
    result_->step = p.step;
    ends = now + ms;
    sched.observe({.rows = double(p.tokens.size()), .logit_rows = double(p.logit_rows.size())}, ms);
    for (const auto& d : p.samples) {
      auto& emitted = emitted_[d.sequence.request];
      sampled_token token;
      token.id = 7;
      if (++emitted == jobs.at(d.sequence.request).length)
        token.finish = sampled_token::finish::eos;
      result_->sampled.push_back(sequence_sample{.sequence = d.sequence, .slot = d.slot, .token = token});
      if (emitted == jobs.at(d.sequence.request).length)
        jobs.at(d.sequence.request).ended = ends;
    }
  }

  std::optional<load_report> end(double now) {
    sched.finished(*std::exchange(result_, std::nullopt));
    using namespace std::chrono;
    return reporter_.due(
      sched, steady_clock::time_point(duration_cast<steady_clock::duration>(duration<double, std::milli>(now))));
  }

  bool busy() const { return result_.has_value(); }

  scheduler sched;
  double ends = 0;

private:
  load_reporter reporter_;
  block_manager manager_;
  std::optional<step_result> result_;
  std::map<std::uint64_t, std::int32_t> emitted_;
};

struct outcome {
  std::uint64_t preemptions = 0;
  double p99_queue_ms = 0, mean_ms = 0, good = 0; // good: share of answers that took no longer than they should
};

void know_all(length_model& model, const std::vector<job>& jobs) {
  for (const auto& one : jobs) {
    const auto signs = signs_of(*one.asked);
    for (int i = 0; i < 30; ++i)
      model.learn(signs, one.length, false, model.predict(signs));
  }
}

outcome serve(unsigned seed, double per_second, knowledge what) {
  constexpr int replicas = 3, count = 500, known_before = 200;
  auto coming = jobs_of(seed, count, per_second);
  const auto earlier = jobs_of(seed + 1000, known_before, per_second);
  std::vector<std::unique_ptr<replica>> all;
  router to;
  const auto prepare = [&](length_model& model) {
    if (what == knowledge::oracle)
      know_all(model, coming);
    if (what == knowledge::learned)
      for (const auto& one : earlier)
        model.learn(signs_of(*one.asked), one.length, false, model.predict(signs_of(*one.asked)));
  };
  for (int i = 0; i < replicas; ++i) {
    all.push_back(std::make_unique<replica>(i));
    prepare(all.back()->sched.lengths());
    to.start(i, 1, {.blocks = replica::blocks, .slots = 32, .queue = 100'000, .step_rows = 256});
  }
  prepare(to.lengths());
  std::map<std::uint64_t, job> jobs;
  std::size_t next = 0;
  double now = 0;
  for (;;) {
    replica* first = nullptr;
    for (auto& each : all)
      if (each->busy() && (!first || each->ends < first->ends))
        first = each.get();
    if (next < coming.size() && (!first || coming[next].arrived <= first->ends)) {
      now = coming[next].arrived;
      const auto number = static_cast<std::uint64_t>(next + 1);
      jobs.emplace(number, coming[next]);
      admission a;
      a.request = number;
      a.asked = coming[next++].asked;
      const auto chosen = to.choose(number, query_of(a, true, {}))->replica;
      all[static_cast<std::size_t>(chosen)]->submit(number, jobs.at(number));
    } else if (first) {
      now = first->ends;
      if (const auto report = first->end(now))
        to.take(*report);
    } else {
      break;
    }
    if (what == knowledge::none) { // nothing is learned
      to.lengths() = length_model();
      for (auto& each : all)
        each->sched.lengths() = length_model();
    }
    for (auto& each : all)
      each->begin(now, jobs);
  }
  outcome result;
  std::vector<double> queued;
  for (const auto& [_, one] : jobs) {
    REQUIRE(one.ended >= 0);
    queued.push_back(one.started - one.arrived);
    result.mean_ms += (one.ended - one.arrived) / count;
    result.good += (one.ended - one.arrived <= 3000 + 40.0 * one.length) / double(count);
  }
  std::ranges::sort(queued);
  result.p99_queue_ms = queued[queued.size() * 99 / 100];
  for (const auto& each : all)
    result.preemptions += each->sched.counters().preemptions;
  return result;
}

} // namespace

TEST_CASE("predicted lengths place answers where they fit, and preempt less") {
  outcome sum[3];
  for (unsigned seed = 1; seed <= 3; ++seed)
    for (const auto what : {knowledge::none, knowledge::learned, knowledge::oracle}) {
      const auto one = serve(seed, 9, what);
      auto& to = sum[static_cast<int>(what)];
      MESSAGE("seed ", seed, " knowledge ", static_cast<int>(what), ": ", one.preemptions, " preemptions, p99 queue ",
              one.p99_queue_ms, " ms, mean ", one.mean_ms, " ms, good ", one.good);
      to.preemptions += one.preemptions;
      to.p99_queue_ms += one.p99_queue_ms;
      to.good += one.good;
    }
  const auto& [none, learned, oracle] = sum;
  CHECK(2 * learned.preemptions <= none.preemptions);
  CHECK(learned.p99_queue_ms <= 0.8 * none.p99_queue_ms);
  CHECK(learned.good >= 0.9 * oracle.good);
}
