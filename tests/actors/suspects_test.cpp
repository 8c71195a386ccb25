// Requests at which every step seems to fail: the culprit is refused, all others go on.
#include "runtime/engine/suspects.hpp"
#include "tests/actors/troubled_engine.hpp"

#include <algorithm>
#include <atomic>
#include <semaphore>

using namespace troupe;
using namespace troupe::testing;

namespace {

/// Whether it computes a prompt of poisonous().
bool has_poison(const step_plan& plan) {
  return std::search_n(plan.tokens.begin(), plan.tokens.end(), 4, token_id(3)) != plan.tokens.end();
}

generation poisonous() {
  auto g = ask(4, 20);
  g.prompt.assign(4, 3); // of no other prompt
  return g;
}

std::shared_ptr<faults> failing_at_poison() {
  auto script = std::make_shared<faults>();
  script->on_plan = [](const step_plan& plan) {
    if (has_poison(plan))
      fail_device();
  };
  return script;
}

} // namespace

TEST_CASE(
  "while every step fails new requests are refused with a sentence, and those that wait go on when it is over") {
  const auto work = ask(10, 30);
  const auto expected = undisturbed({work});
  std::atomic<bool> broken = true;
  troubled_engine e(failing([&](int) {
    if (broken)
      fail_device();
  }));
  std::deque<listener> clients(3), late;
  for (auto& c : clients)
    e.submit(work, c);
  const std::string reason = "the engine is not able to run: a part of it fails again and again, and is started again "
                             "every ";
  for (bool refused = false; !refused;) {
    const auto told = e.wait_until([](const load_status& s) { return !s.degraded.empty(); });
    CHECK(told.degraded.starts_with(reason));
    CHECK(told.degraded.ends_with(" s: cuLaunchKernel(attention): it failed"));
    CHECK(told.now == load_status::stage::ready);
    e.submit(ask(1, 1), late.emplace_back()); // taken, if it runs again at that moment
    e.wait_until([&](const load_status& s) {
      const auto heard = late.back().result();
      refused = heard.failed && heard.failed->code == errc::unavailable && heard.failed->message.starts_with(reason);
      return refused || s.degraded.empty();
    });
  }
  broken = false;
  for (auto& c : clients) {
    REQUIRE(c.wait());
    CHECK(same(c.result(), expected[0]));
  }
  for (auto& c : late)
    REQUIRE(c.wait());
  CHECK(e.wait_until([](const load_status& s) { return s.degraded.empty(); }).now == load_status::stage::ready);
  CHECK(same(e.run(work), expected[0]));
}

TEST_CASE("a request at which every step fails is refused by itself, and the others get on with the same bits") {
  const auto work = mixed_work();
  const auto expected = undisturbed(work);
  for (const int replicas : {1, 2}) {
    CAPTURE(replicas);
    auto options = small();
    options.replicas = options.compute.threads = replicas;
    options.kv_cache_bytes *= static_cast<std::size_t>(replicas);
    troubled_engine e(failing_at_poison(), options);
    listener one, two;
    e.submit(poisonous(), one);
    e.submit(poisonous(), two);
    check_same(e, work, expected);
    for (auto* client : {&one, &two}) {
      REQUIRE(client->wait());
      REQUIRE(client->result().failed.has_value());
      CHECK(client->result().failed->code == errc::poisoned);
      CHECK(client->result().failed->message ==
            "a part of the engine failed each time that it ran this request: cuLaunchKernel(attention): it failed");
    }
    const auto before = e.settled();
    REQUIRE(before.has_value());
    CHECK(before->total.restarts >= 4);
    CHECK(before->total.restarts <= 16);
    check_same(e, work, expected);
    CHECK(e.settled()->total.restarts == before->total.restarts);
  }
}

TEST_CASE("while a request is tried alone no more are accepted than fit the queue") {
  const auto during = ask(20, 10);
  const auto expected = undisturbed({during});
  std::counting_semaphore<> tried(0), over(0);
  std::atomic<int> computed = 0;
  auto script = std::make_shared<faults>();
  script->on_plan = [&](const step_plan& plan) {
    if (!has_poison(plan))
      return;
    if (const int n = ++computed; n == 1)
      fail_device();
    else if (n == 2)
      tried.release(), over.acquire();
  };
  auto options = small();
  options.max_queue = 2; // beside the four that may run
  troubled_engine e(script, options);
  listener suspect;
  e.submit(poisonous(), suspect);
  tried.acquire();
  std::deque<listener> clients(8);
  for (auto& c : clients)
    e.submit(during, c);
  const auto refused = [&] {
    return std::ranges::count_if(clients, [](listener& c) {
      const auto heard = c.result();
      return heard.failed && heard.failed->code == errc::overloaded;
    });
  };
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(5);
       refused() < 3 && std::chrono::steady_clock::now() < end;)
    std::this_thread::yield();
  CHECK(refused() == 3); // by the engine: none of them has come to a scheduler yet
  over.release();
  REQUIRE(suspect.wait());
  CHECK(suspect.result().done.has_value());
  int done = 0;
  for (auto& c : clients) {
    REQUIRE(c.wait());
    const auto heard = c.result();
    done += heard.done && same(heard, expected[0]);
  }
  CHECK(done == 5);
}

TEST_CASE("a poisonous request that comes alone is refused after a few failures") {
  troubled_engine e(failing_at_poison());
  CHECK(e.run(poisonous()).failed->code == errc::poisoned);
  CHECK(e.settled()->total.restarts == suspects::most_alone);
  CHECK(e.run(ask(10, 3)).done.has_value());
}

TEST_CASE("actors that are killed again and again make nobody suspect, and every request ends with the same bits") {
  const auto work = mixed_work();
  const auto expected = undisturbed(work);
  constexpr int kills = 6;
  std::counting_semaphore<> wanted(0), killed(0);
  troubled_engine e(failing([&](int step) {
    if (step % 3 == 0 && step <= 3 * kills)
      wanted.release(), killed.acquire();
  }));
  std::thread killer([&] {
    for (int i = 0; i < kills; ++i) {
      wanted.acquire();
      e.lose_scheduler();
      killed.release();
    }
  });
  check_same(e, work, expected);
  killer.join();
  CHECK(e.settled()->total.restarts == kills);
}
