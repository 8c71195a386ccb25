#include "runtime/scheduling/routing/role_balance.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

constexpr auto prefill = replica_role::prefill, decode = replica_role::decode;

/// Replicas whose roles it decides, at seconds that a test says.
struct balanced {
  role_balance balance{10s};
  std::vector<role_balance::work> all{{.replica = 0, .home = prefill}, {.replica = 1, .home = decode}};

  std::optional<role_change> at(double seconds) {
    const auto now = role_balance::time_point() + std::chrono::milliseconds(static_cast<int>(seconds * 1000));
    const auto change = balance.due(all, now);
    if (change)
      all.at(static_cast<std::size_t>(change->replica)).now = change->to;
    return change;
  }

  void answers_queue(bool do_they) {
    for (auto& each : all)
      each.answers = each.answers_queue = do_they && each.now == decode;
  }
  void prompts_queue(bool do_they) {
    for (auto& each : all)
      each.prompts_queue = do_they;
  }
};

} // namespace

TEST_CASE("a replica that had no prompts for long takes answers while these queue, and says why") {
  balanced two;
  two.answers_queue(true);
  CHECK_FALSE(two.at(0));
  CHECK_FALSE(two.at(9.9));
  const auto change = two.at(10);
  REQUIRE(change.has_value());
  CHECK(change->replica == 0);
  CHECK(change->to == decode);
  CHECK(change->line(10s) ==
        "replica 0 computes answers from now on: it had hardly any prompts for 10 s, while answers queued");
}

TEST_CASE("a long prompt, or a moment in which nothing queues, makes the time begin anew") {
  for (const bool is_prompt : {true, false}) {
    CAPTURE(is_prompt);
    balanced two;
    two.answers_queue(true);
    CHECK_FALSE(two.at(0));
    if (is_prompt)
      two.all[0].prompt_ms += 1100;
    else
      two.answers_queue(false);
    CHECK_FALSE(two.at(6));
    two.answers_queue(true);
    CHECK_FALSE(two.at(7));
    CHECK_FALSE(two.at(15.9));
    CHECK_FALSE((!is_prompt && two.at(16.9).has_value()));
    CHECK(two.at(17).has_value());
  }
}

TEST_CASE("prompts for less than a tenth of the time are hardly any") {
  for (const double ms : {90, 110}) {
    CAPTURE(ms);
    balanced two;
    two.answers_queue(true);
    bool changed = false;
    for (int second = 0; second < 100 && !changed; ++second) {
      changed = two.at(second).has_value();
      two.all[0].prompt_ms += ms;
    }
    CHECK(changed == (ms < 100));
  }
}

TEST_CASE("whoever decodes takes prompts likewise, and what is answered meanwhile keeps it in its role") {
  balanced two;
  two.all[0].prompts_queue = true;
  two.all[1].answers = true;
  CHECK_FALSE(two.at(0));
  CHECK_FALSE(two.at(100));
  two.all[1].answers = false;
  CHECK_FALSE(two.at(101));
  CHECK_FALSE(two.at(109.9));
  const auto change = two.at(110);
  REQUIRE(change.has_value());
  CHECK(change->replica == 1);
  CHECK(change->to == prefill);
}

TEST_CASE("it goes back once its own role queues for a while, whatever it still answers") {
  balanced two;
  two.answers_queue(true);
  two.at(0);
  REQUIRE(two.at(10).has_value());
  two.answers_queue(true);
  CHECK_FALSE(two.at(60)); // prompts are few
  two.prompts_queue(true);
  CHECK_FALSE(two.at(61));
  CHECK_FALSE(two.at(63.4));
  const auto change = two.at(63.5);
  REQUIRE(change.has_value());
  CHECK(change->replica == 0);
  CHECK(change->to == prefill);
  CHECK(change->line(10s) == "replica 0 computes prompts again: they queue");
  CHECK_FALSE(two.at(80)); // and stays
}

TEST_CASE("it goes back when there is nothing for it in the other role, either") {
  balanced two;
  two.answers_queue(true);
  two.at(0);
  REQUIRE(two.at(10).has_value());
  two.answers_queue(false);
  CHECK_FALSE(two.at(11));
  CHECK_FALSE(two.at(20.9));
  const auto change = two.at(21);
  REQUIRE(change.has_value());
  CHECK(change->line(10s) == "replica 0 computes prompts again: there were hardly any answers for it for 10 s");
}

TEST_CASE("it stays while others have answers enough, though none have come to it") {
  balanced two;
  two.answers_queue(true);
  two.at(0);
  REQUIRE(two.at(10).has_value());
  for (int second = 11; second < 100; ++second)
    CHECK_FALSE(two.at(second));
  two.answers_queue(false);
  CHECK(two.at(100).has_value());
}

TEST_CASE("of several idle replicas one changes at a time") {
  balanced three;
  three.all.insert(three.all.begin() + 1, {.replica = 1, .home = prefill});
  three.all[2].replica = 2;
  three.answers_queue(true);
  three.at(0);
  CHECK(three.at(10)->replica == 0);
  three.answers_queue(true);
  CHECK_FALSE(three.at(10.1));
  CHECK_FALSE(three.at(19));
  CHECK(three.at(20.1)->replica == 1);
}

TEST_CASE("a replica that was started again has been idle for no time") {
  balanced two;
  two.answers_queue(true);
  two.at(0);
  two.balance.forget(0);
  CHECK_FALSE(two.at(10));
  CHECK(two.at(20).has_value());
}

TEST_CASE("roles stay where that is asked for") {
  balanced two;
  two.balance = role_balance();
  two.answers_queue(true);
  CHECK_FALSE(two.at(0));
  CHECK_FALSE(two.at(1000));
}
