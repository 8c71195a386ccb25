#include "runtime/scheduling/planning/ledger_keeper.hpp"

#include <doctest/doctest.h>

#include <map>
#include <optional>

using namespace troupe;

namespace {

using time_point = request_ledger::time_point;

time_point at(int ms) { return time_point() + std::chrono::hours(1) + std::chrono::milliseconds(ms); }

/// Requests of a scheduler, and where they stand outside of steps.
struct watched {
  ledger_keeper keeper;
  std::map<std::uint64_t, std::shared_ptr<request_ledger>> ledgers;
  std::map<std::uint64_t, wait_cause> standing;
  step_cost cost; // of which nothing is known: rows are compared
  std::uint64_t steps = 0;

  void join(std::uint64_t request, int now, wait_cause came = wait_cause::queue) {
    admission its;
    its.request = request;
    its.ledger = ledgers[request] = std::make_shared<request_ledger>(at(now));
    its.came = came;
    its.ledger->admit(request, {came}, at(now));
    keeper.joined(its, at(now));
  }

  /// Rows of one sequence in the next plan. `sampled`: its last row is sampled from.
  struct rows {
    std::uint64_t request = 0;
    std::int32_t count = 0;
    bool sampled = true;
    std::int32_t guesses = 0;
  };

  void plan(int now, const std::vector<rows>& all, const std::vector<step_lane>& others = {}) {
    step_plan made;
    made.step = ++steps;
    block_grant grant;
    std::vector<step_lane> running = others;
    for (const auto& r : all) {
      const sequence_id id{r.request, 0};
      block_answer answer;
      answer.sequence = id, answer.rows = r.count;
      grant.answers.push_back(answer);
      if (r.count == 0)
        continue;
      running.push_back({id, wait_cause::turn});
      kernels::sequence_rows its;
      its.rows = r.count;
      made.sequences.push_back(its);
      if (r.sampled) {
        sample_demand sample;
        sample.sequence = id, sample.guesses = r.guesses;
        made.samples.push_back(sample);
      }
    }
    keeper.granted(grant);
    keeper.planned(
      made, cost, running,
      [this](std::uint64_t request) {
        const auto found = standing.find(request);
        return found == standing.end() ? std::nullopt : std::optional(found->second);
      },
      at(now));
  }

  void finish(int now, std::uint64_t step, const std::vector<sequence_id>& deferred = {}, bool at_judge = false) {
    step_result result;
    result.step = step;
    result.deferred = deferred;
    if (at_judge)
      result.at_judge = deferred;
    keeper.finished(result, at(now));
  }

  wait_parts parts(std::uint64_t request, int now) const {
    const auto seen = ledgers.at(request)->seen(at(now)).parts;
    return seen;
  }
};

} // namespace

TEST_CASE("a request waits in the queue until the step with its first rows is under way") {
  watched w;
  w.join(1, 0);
  w.join(2, 5);
  w.plan(10, {{1, 8}});
  w.plan(12, {{2, 8}}); // ahead
  w.finish(30, 1);
  w.finish(35, 2);
  CHECK(w.parts(1, 30)[wait_cause::queue] == doctest::Approx(10));
  CHECK(w.parts(1, 30)[wait_cause::prefill] == doctest::Approx(20));
  CHECK(w.parts(2, 35)[wait_cause::queue] == doctest::Approx(25));
  CHECK(w.parts(2, 35)[wait_cause::prefill] == doctest::Approx(5));
}

TEST_CASE("a decoding request and a prompt beside it each pay for the other's rows as others' prefill") {
  watched w;
  w.join(1, 0);
  w.join(2, 0);
  w.join(3, 0);
  w.plan(0, {{1, 1}, {2, 6}, {3, 3}});
  w.finish(100, 1);
  CHECK(w.parts(1, 100)[wait_cause::decode] == doctest::Approx(10));
  CHECK(w.parts(1, 100)[wait_cause::others_prefill] == doctest::Approx(90));
  CHECK(w.parts(2, 100)[wait_cause::prefill] == doctest::Approx(70));
  CHECK(w.parts(2, 100)[wait_cause::others_prefill] == doctest::Approx(30));
}

TEST_CASE("rows with guesses behind them are decoding, and more rows than that a prompt") {
  watched w;
  w.join(1, 0);
  w.join(2, 0);
  w.plan(0, {{1, 4, true, 3}});
  w.finish(10, 1);
  w.plan(10, {{2, 4, false}, {1, 4, true, 3}});
  CHECK(w.parts(1, 10)[wait_cause::decode] == doctest::Approx(10));
  CHECK(w.ledgers[2]->seen(at(20)).state.what == wait_cause::prefill);
}

TEST_CASE("what a running request does without rows is told by its place, and others' prompts are taken off") {
  watched w;
  for (const auto request : {1, 2, 3})
    w.join(static_cast<std::uint64_t>(request), 0);
  w.plan(0, {{1, 4}}, {{{2, 0}, wait_cause::turn}, {{3, 0}, wait_cause::mask}});
  w.finish(10, 1);
  CHECK(w.parts(2, 10)[wait_cause::others_prefill] == doctest::Approx(10)); // nothing else was in the step
  CHECK(w.parts(3, 10)[wait_cause::mask] == doctest::Approx(10));
  w.plan(10, {{1, 1}}, {{{2, 0}, wait_cause::turn}});
  w.finish(14, 2);
  CHECK(w.parts(2, 14)[wait_cause::turn] == doctest::Approx(4));
}

TEST_CASE("who was preempted, refused blocks, or paused is told so, and a later step under way does not undo it") {
  watched w;
  for (const auto request : {1, 2, 3})
    w.join(static_cast<std::uint64_t>(request), 0);
  w.plan(0, {{1, 1}, {2, 1}});
  w.plan(2, {{1, 1}, {2, 1}}); // ahead
  w.standing[2] = wait_cause::preempted;
  w.plan(4, {{1, 1}, {3, 0}}); // the second lost its place, the third was refused
  w.finish(10, 1);
  w.finish(20, 2);
  w.finish(30, 3);
  CHECK(w.parts(2, 30)[wait_cause::decode] == doctest::Approx(20));
  CHECK(w.parts(2, 30)[wait_cause::preempted] == doctest::Approx(10));
  CHECK(w.parts(3, 30)[wait_cause::blocks] == doctest::Approx(10));
  w.plan(30, {{1, 1}});
  w.keeper.stands(1, wait_cause::paused, at(30));
  w.plan(31, {{1, 1}}); // ahead
  w.finish(33, 4);
  w.finish(35, 5);
  CHECK(w.parts(1, 37)[wait_cause::paused] == doctest::Approx(7));
  w.keeper.stands(1, wait_cause::turn, at(40));
  CHECK(w.parts(1, 47)[wait_cause::turn] == doctest::Approx(7));
}

TEST_CASE("a sample that is late waits for its mask or its judge, also while the next step is under way") {
  watched w;
  w.join(1, 0);
  w.join(2, 0);
  w.plan(0, {{1, 1}, {2, 1}});
  w.plan(1, {{2, 1}}, {{{1, 0}, wait_cause::turn}});
  w.finish(10, 1, {{1, 0}});
  CHECK(w.parts(1, 18)[wait_cause::mask] == doctest::Approx(8));
  w.finish(20, 2, {{2, 0}}, true);
  CHECK(w.parts(2, 25)[wait_cause::judge] == doctest::Approx(5));
}

TEST_CASE("the queue of a request that was resumed is called by what made it wait") {
  watched w;
  w.join(1, 0, wait_cause::restart);
  w.plan(6, {{1, 0}}); // refused
  w.finish(8, 1);
  w.standing[1] = wait_cause::queue;
  w.join(2, 8);
  w.plan(8, {{2, 1}});
  CHECK(w.parts(1, 10)[wait_cause::restart] == doctest::Approx(8));
  CHECK(w.parts(1, 10)[wait_cause::blocks] == doctest::Approx(2));
  CHECK(w.parts(1, 10)[wait_cause::queue] == 0);
}

TEST_CASE("grants of a step that came to nothing are forgotten, and so is who has left") {
  watched w;
  w.join(1, 0);
  block_grant grant;
  grant.answers.emplace_back();
  grant.answers.back().sequence = {1, 0};
  w.keeper.granted(grant); // refused
  w.keeper.dropped();
  w.join(2, 0);
  w.plan(5, {{2, 1}});
  CHECK(w.ledgers[1]->seen(at(6)).state.what == wait_cause::queue);
  w.keeper.left(2);
  w.finish(10, 1);
  w.plan(10, {{2, 5}});
  CHECK(w.ledgers[2]->seen(at(11)).state.what == wait_cause::decode);
}
