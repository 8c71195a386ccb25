// Replicas behind the router in virtual time: real schedulers, block managers and load reporters, around executors that
// take the time that a step costs and compute nothing.
#pragma once

#include "runtime/scheduling/blocks/block_chain.hpp"
#include "runtime/scheduling/blocks/block_manager.hpp"
#include "runtime/scheduling/planning/scheduler.hpp"
#include "runtime/scheduling/routing/load_reporter.hpp"
#include "runtime/scheduling/routing/router.hpp"
#include "tests/runtime/scheduling/submission.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <vector>

namespace troupe::testing {

struct simulated_request {
  double at = 0; // ms
  std::vector<token_id> prompt;
  int answer = 1; // tokens
  int most = 0;   // that it asks for; 0: as many

  int limit() const { return std::max(most, answer); }
};

/// What came of a request.
struct simulated_answer {
  int replica = -1; // that it was last sent to
  int sent = 0;     // times
  double first_token = -1, end = -1;
};

class simulated_replica {
public:
  simulated_replica(int number, std::uint64_t life, scheduler_limits limits, int blocks, double slowness)
    : reporter_(number, life, blocks), manager(blocks, true), sched_(limits), slowness_(slowness) {}

  void submit(std::uint64_t id, const simulated_request& what, int expected_cached) {
    submission a;
    a.request = a.arrival = id;
    a.prompt = what.prompt;
    a.sampling.max_tokens = what.limit();
    answers_[id] = what.answer;
    a.expected_cached = expected_cached;
    a.again = true;
    REQUIRE_FALSE(sched_.submit(a).has_value());
    reporter_.received(id);
  }

  /// Begins a step if it can.
  void plan(double now) {
    while (!step_ && sched_.wants_step()) {
      scheduler::next n = sched_.begin_step();
      while (auto* request = std::get_if<block_request>(&n)) {
        const auto grant = manager.serve(*request);
        reporter_.granted(grant);
        n = sched_.granted(grant);
      }
      if (auto* p = std::get_if<std::shared_ptr<const step_plan>>(&n)) {
        step_ = *p;
        took_ = slowness_ * (std::max(40.0, 10 + 1.5 * shape_of(*step_).rows) + 0.0005 * shape_of(*step_).attended);
        ends_ = now + took_;
      }
    }
  }

  /// When the step under way ends.
  std::optional<double> ends() const { return step_ ? std::optional(ends_) : std::nullopt; }

  void finish(const std::function<void(std::uint64_t, bool)>& sampled) {
    const auto plan = std::exchange(step_, nullptr);
    step_result result;
    result.step = plan->step;
    for (const auto& d : plan->samples) {
      if (d.start)
        left_[d.sequence.request] = answers_.at(d.sequence.request) - static_cast<int>(d.start->emitted.size());
      const bool last = --left_.at(d.sequence.request) == 0;
      sampled_token token{.id = static_cast<token_id>(20 + d.sequence.request % 500)};
      token.finish = last ? sampled_token::finish::eos : sampled_token::finish::none;
      result.sampled.push_back({d.sequence, d.slot, token});
      sampled(d.sequence.request, last);
    }
    sched_.observe(shape_of(*plan), took_);
    sched_.finished(result, took_, took_);
  }

  std::optional<load_report> due(double now) {
    using namespace std::chrono;
    return reporter_.due(sched_,
                         load_reporter::time_point(duration_cast<nanoseconds>(duration<double, std::milli>(now))));
  }

  scheduler& sched() { return sched_; }

private:
  load_reporter reporter_;

public:
  block_manager manager;

private:
  scheduler sched_;
  double slowness_;
  std::shared_ptr<const step_plan> step_;
  double took_ = 0, ends_ = 0;
  std::map<std::uint64_t, int> answers_, left_; // tokens, by request
};

class simulation {
public:
  /// Chooses instead of the router.
  using chooser = std::function<int(std::uint64_t)>;

  /// `slowness`: of each replica.
  simulation(scheduler_limits limits, int blocks, std::vector<double> slowness, chooser choose = {})
    : limits_(limits), blocks_(blocks), slowness_(std::move(slowness)), choose_(std::move(choose)) {
    for (std::size_t i = 0; i < slowness_.size(); ++i)
      start(static_cast<int>(i));
  }

  void start(int number) {
    ++lives_;
    router_.start(number, lives_,
                  {.blocks = blocks_,
                   .slots = limits_.max_sequences,
                   .queue = limits_.max_queue,
                   .step_rows = limits_.step_tokens});
    replicas_[number] = std::make_unique<simulated_replica>(number, lives_, limits_, blocks_,
                                                            slowness_.at(static_cast<std::size_t>(number)));
  }

  /// It dies; its requests go to others.
  void lose(int number, double now) {
    replicas_.erase(number);
    router_.stop(number);
    for (auto& [id, answer] : answers)
      if (answer.replica == number && answer.end < 0)
        send(id, now);
  }

  /// Adds a request, at its time or later.
  std::uint64_t add(simulated_request what) {
    const auto id = static_cast<std::uint64_t>(requests_.size()) + 1;
    arrivals_.emplace(what.at, id);
    requests_.push_back(std::move(what));
    return id;
  }

  /// What is to happen when a request has ended.
  std::function<void(std::uint64_t id, double now)> on_end;

  std::function<void()> on_step; // after each event

  /// Runs until nothing is left to do, or for so long.
  double run(double until = 1e12) {
    for (;;) {
      double next = arrivals_.empty() ? 1e18 : arrivals_.begin()->first;
      simulated_replica* ends = nullptr;
      for (auto& [_, r] : replicas_)
        if (const auto at = r->ends(); at && *at < next) {
          next = *at;
          ends = r.get();
        }
      if (next > until)
        return now_;
      now_ = next;
      if (ends) {
        ends->finish([&](std::uint64_t id, bool last) { note(id, last); });
      } else {
        const auto id = arrivals_.begin()->second;
        arrivals_.erase(arrivals_.begin());
        answers[id];
        send(id, now_);
      }
      for (auto& [_, r] : replicas_) {
        r->plan(now_);
        if (auto report = r->due(now_)) {
          ++reports;
          router_.take(*report);
        }
      }
      if (on_step)
        on_step();
    }
  }

  /// Calls `teach` with what predicts the lengths of answers, in the router and in each replica.
  void with_lengths(const std::function<void(length_model&)>& teach) {
    teach(router_.lengths());
    for (auto& [_, r] : replicas_)
      teach(r->sched().lengths());
  }

  std::uint64_t preemptions() const {
    std::uint64_t all = 0;
    for (auto& [_, r] : replicas_)
      all += r->sched().counters().preemptions;
    return all;
  }

  /// Times to the first token, ascending.
  std::vector<double> ttft() const {
    std::vector<double> all;
    for (auto& [id, a] : answers)
      all.push_back(a.first_token - requests_[id - 1].at);
    std::ranges::sort(all);
    return all;
  }

  int sent_to(int replica) const {
    return static_cast<int>(std::ranges::count_if(answers, [=](auto& a) { return a.second.replica == replica; }));
  }

  /// Of the tokens looked up, those found cached.
  double hit_rate() const {
    double found = 0, looked_up = 0;
    for (auto& [_, r] : replicas_) {
      found += static_cast<double>(r->manager.counters().found_tokens);
      looked_up += static_cast<double>(r->manager.counters().looked_up_tokens);
    }
    return found / looked_up;
  }

  std::map<std::uint64_t, simulated_answer> answers;
  int reports = 0;

private:
  void send(std::uint64_t id, double now) {
    auto& answer = answers.at(id);
    const auto& what = requests_.at(id - 1);
    const auto tokens = static_cast<std::int32_t>(what.prompt.size());
    const auto to = router_.choose(
      id,
      {.chain = block_chain(what.prompt, 0),
       .tokens = tokens,
       .most_cached = tokens,
       .signs = {.chain = block_chain(what.prompt, 0), .prompt_tokens = tokens, .most = what.limit()},
       .most_answer = what.limit()});
    REQUIRE(to.has_value());
    answer.replica = choose_ ? choose_(id) : to->replica;
    ++answer.sent;
    replicas_.at(answer.replica)->submit(id, what, to->cached_tokens);
    replicas_.at(answer.replica)->plan(now);
  }

  void note(std::uint64_t id, bool last) {
    auto& answer = answers.at(id);
    if (answer.first_token < 0)
      answer.first_token = now_;
    if (!last)
      return;
    answer.end = now_;
    router_.end(id);
    if (on_end)
      on_end(id, now_);
  }

  scheduler_limits limits_;
  int blocks_;
  std::vector<double> slowness_;
  chooser choose_;
  router router_;
  std::uint64_t lives_ = 0;
  std::map<int, std::unique_ptr<simulated_replica>> replicas_;
  std::vector<simulated_request> requests_; // by id - 1
  std::multimap<double, std::uint64_t> arrivals_;
  double now_ = 0;
};

inline double mean(const std::vector<double>& of) {
  double sum = 0;
  for (const auto x : of)
    sum += x;
  return sum / static_cast<double>(of.size());
}

inline double percentile(const std::vector<double>& ascending, double share) {
  return ascending.at(static_cast<std::size_t>(share * static_cast<double>(ascending.size() - 1)));
}

} // namespace troupe::testing
