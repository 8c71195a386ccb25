// Requests that run out of memory: each still ends for its client.
#include "actors/unwoken.hpp"
#include "runtime/support/meter.hpp"
#include "tests/actors/failing_memory.hpp"
#include "tests/actors/faulty_device.hpp"
#include "tests/actors/worker_group.hpp"

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

using namespace troupe;
using namespace troupe::testing;

namespace {

bool is_last(const event& e) { return !std::holds_alternative<token_event>(e); }

generation short_one() {
  generation g;
  g.prompt = {1, 2, 3};
  g.sampling.max_tokens = 5;
  g.sampling.temperature = 0;
  return g;
}

class roused_client final : public wakeable<client_actor::base> {
public:
  using body = std::function<behavior_type(client_actor::pointer)>;
  roused_client(caf::actor_config& config, body of) : wakeable(config), of_(std::move(of)) {}

protected:
  behavior_type make_behavior() override { return of_(this); }

private:
  body of_;
};

} // namespace

TEST_CASE("whichever allocation of a request actor fails, its client receives an end and nothing stays behind") {
  worker_group workers;
  int errors = 0;
  for (int nth = 1;; ++nth) {
    CAPTURE(nth);
    test::failing_allocation failing(nth);
    std::vector<event> events;
    const auto request = workers.submit({1, 2, 3}, 5, events, 2);
    const auto* actor = caf::actor_cast<caf::abstract_actor*>(request);
    while (workers.coordinator.has_job()) {
      const bool its_turn = dynamic_cast<caf::abstract_actor*>(workers.coordinator.jobs.front()) == actor;
      if (its_turn)
        failing.arm();
      workers.coordinator.run_once();
      failing.disarm();
    }
    REQUIRE(!events.empty());
    CHECK(std::ranges::count_if(events, is_last) == 1);
    CHECK(workers.idle());
    if (!failing.happened())
      break;
    if (const auto* why = std::get_if<error>(&events.back())) {
      ++errors;
      CHECK((why->code == errc::out_of_memory || why->code == errc::internal));
    }
  }
  CHECK(errors > 10);
}

TEST_CASE("a client's function that has no memory for the end of its request hears it once there is some") {
  worker_group workers;
  bool failed = true;
  for (int nth = 1; failed; ++nth) {
    CAPTURE(nth);
    std::vector<event> events;
    int calls = 0;
    bool little = true;
    failed = false;
    spawn_request(workers.system, workers.engine, std::make_shared<const generation>(short_one()),
                  client_line([&](event e) {
                    if (little && ++calls >= nth) {
                      failed = true;
                      throw std::bad_alloc();
                    }
                    events.push_back(std::move(e));
                  }));
    workers.coordinator.run();
    CHECK(workers.idle());
    CHECK(std::ranges::count_if(events, is_last) == (failed ? 0 : 1));
    little = false;
    unwoken::wake();
    REQUIRE(std::ranges::count_if(events, is_last) == 1);
    CHECK(is_last(events.back()));
    unwoken::wake();
    CHECK(std::ranges::count_if(events, is_last) == 1);
  }
}

TEST_CASE("a thread that handles no message tries what it must wake, and calls nobody else's functions") {
  struct scarce final : unwoken::entry {
    explicit scarce(int tries, const void* of = nullptr) : entry(of), left(tries) {}
    void try_again() override {
      ++calls;
      if (--left > 0)
        throw std::bad_alloc();
    }
    int left, calls = 0;
  };
  scarce others(2), own(3), told(3, &others);
  unwoken::add(others);
  unwoken::insist(own);
  CHECK(own.calls == 3);
  unwoken::add(told);
  unwoken::forget(&others);
  CHECK(told.calls == 3);
  CHECK(others.calls == 0);
  {
    const unwoken::later message;
    { const unwoken::later of_a_companion; }
    CHECK(others.calls == 0);
  }
  unwoken::wake();
  unwoken::wake();
  CHECK(others.calls == 2);
}

TEST_CASE("who forgets its own functions waits for one that is being called, and for nobody else's") {
  struct counted final : unwoken::entry {
    using entry::entry;
    void try_again() override { ++calls; }
    int calls = 0;
  };
  struct slow final : unwoken::entry {
    using entry::entry;
    void try_again() override {
      begun = true;
      for (int i = 0; i < 12'000 && !go_on; ++i) // two minutes
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      went_on = go_on.load();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      ended = true;
    }
    std::atomic<bool> begun = false, go_on = false, went_on = false, ended = false;
  };
  const int one = 1, other = 2;
  slow its(&one);
  counted others(&other);
  unwoken::add(its);
  std::thread thread(unwoken::wake);
  while (!its.begun)
    std::this_thread::yield();
  unwoken::add(others);
  unwoken::forget(&other);
  CHECK(others.calls == 1);
  its.go_on = true;
  unwoken::forget(&one);
  CHECK(its.ended);
  CHECK(its.went_on);
  thread.join();
}

TEST_CASE("a client that is an actor hears of the end of its request although there is no memory to say why") {
  worker_group workers;
  int ends = 0;
  const client_actor client = workers.system.spawn<roused_client>(
    [&](client_actor::pointer) -> client_actor::behavior_type {
      return {[&](event_atom, std::uint64_t id, const event_ptr& e) {
        ends += id == 7 && std::holds_alternative<error>(*e);
      }};
    });
  workers.coordinator.run();
  for (int nth = 1;; ++nth) {
    CAPTURE(nth);
    ends = 0;
    test::failing_allocation failing(nth);
    {
      const client_line line(client, 7);
      failing.arm();
    }
    failing.disarm();
    workers.coordinator.run();
    CHECK(ends == 1);
    if (!failing.happened())
      break;
  }
  for (int nth = 1;; ++nth) {
    CAPTURE(nth);
    ends = 0;
    test::failing_allocation failing(nth);
    failing.arm();
    try {
      const client_line line(client, 7);
      failing.disarm();
    } catch (const std::bad_alloc&) {
    }
    failing.disarm();
    workers.coordinator.run();
    CHECK(ends == (failing.happened() ? 0 : 1)); // whoever made it says so
    if (!failing.happened())
      break;
  }
}

TEST_CASE("whichever allocation fails while a request is spawned, its client is told or its line stays open") {
  worker_group workers;
  for (int nth = 1;; ++nth) {
    CAPTURE(nth);
    std::vector<event> events;
    client_line line([&](event e) { events.push_back(std::move(e)); });
    const auto what = std::make_shared<const generation>();
    test::failing_allocation failing(nth);
    failing.arm();
    try {
      spawn_request(workers.system, workers.engine, what, std::move(line));
    } catch (const std::bad_alloc&) {
      line.close(std::current_exception());
    }
    failing.disarm();
    workers.coordinator.run();
    REQUIRE(events.size() == 1);
    CHECK(std::get<error>(events[0]).code == (failing.happened() ? errc::out_of_memory : errc::bad_request));
    if (!failing.happened())
      break;
  }
}

TEST_CASE("a sampler hears of a mask although there was no memory to tell it, on a thread that must not throw") {
  worker_group workers;
  const auto script = std::make_shared<faults>();
  auto& stage = workers.model->replicas.front().stages.front();
  stage = std::make_shared<faulty_device>(stage, script);
  const auto sampler = spawn_sampler(workers.system, replica_of(workers.model));
  workers.coordinator.run();
  for (int nth = 1;; ++nth) {
    CAPTURE(nth);
    test::failing_allocation failing(nth);
    failing.arm();
    script->late();
    failing.disarm();
    CHECK(workers.coordinator.run() == 1);
    if (!failing.happened())
      break;
  }
  caf::anon_send_exit(sampler, caf::exit_reason::kill);
  workers.coordinator.run();
  script->late(); // to nobody
  CHECK_FALSE(workers.coordinator.has_job());
}

TEST_CASE("a handler that has had its share of memory does not wait for more of it to tell its sampler of a mask") {
  worker_group workers;
  const auto script = std::make_shared<faults>();
  auto& stage = workers.model->replicas.front().stages.front();
  stage = std::make_shared<faulty_device>(stage, script);
  const auto sampler = spawn_sampler(workers.system, replica_of(workers.model));
  workers.coordinator.run();
  test::failing_allocation failing(1);
  meter share({.steps = 0});
  const auto handle = [&] {
    CHECK_THROWS_AS(meter::charge(1), meter_spent);
    failing.arm();
    script->late();
  };
  CHECK_THROWS_AS(share.run(handle), std::bad_alloc);
  failing.disarm();
  caf::anon_send_exit(sampler, caf::exit_reason::kill);
  workers.coordinator.run();
}
