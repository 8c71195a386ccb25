#include "runtime/scheduling/cost/wait_forecast.hpp"

#include "tests/runtime/scheduling/scheduler_machine.hpp"

#include <chrono>

using namespace troupe;
using namespace troupe::testing;

namespace {

using time_point = admission::time_point;

/// A machine whose steps take 20 ms, and 1 ms for each row.
queue_outlook idle(std::int32_t slots) {
  queue_outlook at;
  at.slots = slots;
  at.pace.step_rows = 512;
  at.pace.cost.steps = 100;
  for (std::size_t i = 0; i < step_cost::knots.size(); ++i)
    at.pace.cost.knot_ms[i] = 20 + step_cost::knots[i];
  return at;
}

step_shape rows(double count) { return {.rows = count}; }

time_point at(int ms) { return time_point() + std::chrono::hours(1) + std::chrono::milliseconds(ms); }

/// Steps that take 20 ms, and 1 ms for each row, were observed.
void teach_cost(scheduler& of) {
  for (int i = 0; i < 300; ++i)
    for (const auto each : {1, 4, 16, 64})
      of.observe({.rows = double(each)}, 20 + each);
}

} // namespace

TEST_CASE("who comes to an idle machine waits for nothing, and its first token takes its prompt") {
  const auto found = forecast(idle(4), {rows(100)});
  CHECK(found.start_ms == 0);
  CHECK(found.first_token_ms == doctest::Approx(120));
}

TEST_CASE("prompts ahead are computed first") {
  auto all = idle(4);
  all.prompts = rows(60);
  all.left = {100};
  all.ahead = {{rows(40)}};
  const auto found = forecast(all, {rows(50)});
  CHECK(found.start_ms == doctest::Approx(20 + 100));
  CHECK(found.first_token_ms == doctest::Approx(20 + 150));
}

TEST_CASE("slots come free in the order in which answers are expected to end, and those ahead take them first") {
  auto all = idle(2);
  all.left = {10, 50};
  CHECK(forecast(all, {}).start_ms == doctest::Approx(10 * 22));
  all.ahead = {{{}, 100}}; // takes the slot of the first until token 110
  CHECK(forecast(all, {}).start_ms == doctest::Approx(50 * 22));
  all.ahead.push_back({{}, 5}); // and this one that of the second until token 55
  CHECK(forecast(all, {}).start_ms == doctest::Approx(55 * 22));
  CHECK(forecast(all, {{}, 0, 2}).start_ms == doctest::Approx(110 * 22)); // of two sequences
  CHECK(forecast(all, {{}, 0, 9}).start_ms == doctest::Approx(110 * 22)); // of more than ever run at once
}

TEST_CASE("a request that would wait longer than any may is refused with the wait, and one that may not is not") {
  scheduler_limits limits{64, 1, 100, 2};
  limits.max_wait_ms = 1000;
  machine m(100, true, limits);
  teach_cost(m.sched);
  const auto late = [&] { return m.sched.too_late(make(99, std::vector<token_id>(20, 3), 8), at(0)); };
  CHECK_FALSE(late().has_value());
  for (std::uint64_t request = 1; request <= 20; ++request)
    submit(m, make(request, std::vector<token_id>(100, static_cast<token_id>(request)), 8));
  const auto refused = late(); // 2,000 rows are ahead, in steps of 64
  REQUIRE(refused.has_value());
  CHECK(refused->code == errc::overloaded);
  CHECK(refused->wait_ms > 2000);
  CHECK(refused->wait_ms < 3500);
  CHECK(refused->retry_ms == doctest::Approx(refused->wait_ms - 1000));
  CHECK(refused->message.find("--max-wait") != std::string::npos);
  auto again = make(99, std::vector<token_id>(20, 3), 8);
  again.again = true;
  CHECK_FALSE(m.sched.too_late(again, at(0)).has_value());
  auto first = make(99, std::vector<token_id>(20, 3), 8, 1, 5); // of a higher priority: nobody is ahead of it
  CHECK_FALSE(m.sched.too_late(first, at(0)).has_value());
  auto other = make(99, std::vector<token_id>(20, 3), 8); // another client's: its turn comes second
  other.client = "another";
  CHECK_FALSE(m.sched.too_late(other, at(0)).has_value());
  m.drain();
}

TEST_CASE("answers that others wait for count as long as such answers were, once enough have ended") {
  machine m(100, true, {64, 1, 100, 2});
  teach_cost(m.sched);
  submit(m, make(1, {1, 2, 3}, 500));
  m.plan(), m.execute(), m.book(); // it runs
  CHECK(m.sched.forecast(make(9, {5}, 8)).start_ms < 100);
  for (int i = 0; i < 200; ++i)
    m.sched.lengths().learn({.most = 500}, 200, false, m.sched.lengths().predict({.most = 500}));
  submit(m, make(2, {1, 2, 3}, 500)); // waits, and its length is known
  CHECK(m.sched.forecast(make(9, {5}, 8)).start_ms > 150 * 20);
  CHECK(m.sched.forecast(make(9, {5}, 8)).start_ms < 300 * 22);
  m.drain();
}

TEST_CASE("a request that cannot have its first token in time is refused, naming the field") {
  machine m(100, true, {64, 1, 100, 2});
  teach_cost(m.sched);
  for (std::uint64_t request = 1; request <= 10; ++request)
    submit(m, make(request, std::vector<token_id>(100, static_cast<token_id>(request)), 8));
  admission late = make(99, std::vector<token_id>(20, 3), 8);
  CHECK_FALSE(m.sched.too_late(late, at(0)).has_value());
  late.first_by = at(500), late.all_by = at(10'000);
  const auto refused = m.sched.too_late(late, at(0));
  REQUIRE(refused.has_value());
  CHECK(refused->param == "ttft_timeout");
  CHECK(refused->retry_ms > 0);
  late.first_by = time_point::max(), late.all_by = at(500);
  CHECK(m.sched.too_late(late, at(0)).value_or(error()).param == "timeout");
  late.all_by = at(10'000);
  CHECK_FALSE(m.sched.too_late(late, at(0)).has_value());
  m.drain();
}
