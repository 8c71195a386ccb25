// Between the end of a worker group and the start of the next one: who is accepted, refused, told, and goes on.
#include "actors/actor_counts.hpp"
#include "tests/actors/troubled_engine.hpp"

#include <algorithm>
#include <new>

using namespace troupe;
using namespace troupe::testing;

TEST_CASE("a scheduler that dies is replaced like any other actor") {
  const auto work = mixed_work();
  const auto expected = undisturbed(work);
  std::promise<void> reached, release;
  troubled_engine e(waiting_at(8, reached, release));
  std::thread killer([&] {
    reached.get_future().wait();
    e.lose_scheduler();
    release.set_value();
  });
  check_same(e, work, expected);
  killer.join();
  CHECK(e.settled()->total.restarts == 1);
}

TEST_CASE("between two worker groups requests are accepted, refused and cancelled") {
  const auto before = ask(10, 30), during = ask(20, 10);
  const auto expected = undisturbed({before, during});
  std::promise<void> reached, release;
  troubled_engine e(waiting_at(5, reached, release));
  listener running, accepted, cancelled;
  e.submit(before, running);
  reached.get_future().wait();
  e.lose_scheduler();
  e.submit(during, accepted);
  auto impossible = during;
  impossible.prompt = {};
  CHECK(e.run(impossible).failed->param == "prompt");
  caf::anon_send(e.submit(during, cancelled), cancel_atom::value);
  REQUIRE(cancelled.wait());
  CHECK(cancelled.result().finish.at(0) == finish_reason::cancelled);
  release.set_value();
  REQUIRE(running.wait());
  REQUIRE(accepted.wait());
  CHECK(same(running.result(), expected[0]));
  CHECK(same(accepted.result(), expected[1]));
  CHECK(e.settled()->total.restarts == 1);
}

TEST_CASE("between two worker groups no more requests are accepted than fit the queue") {
  const auto before = ask(10, 30), during = ask(20, 10);
  const auto expected = undisturbed({during});
  std::promise<void> reached, release;
  auto options = small();
  options.max_queue = 2; // beside the four that may run
  troubled_engine e(waiting_at(5, reached, release), options);
  listener running;
  e.submit(before, running);
  reached.get_future().wait();
  e.lose_scheduler();
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
       refused() < 3 && std::chrono::steady_clock::now() < end;) // before there is room again
    std::this_thread::yield();
  release.set_value();
  REQUIRE(running.wait());
  CHECK(running.result().done.has_value());
  int done = 0;
  for (auto& c : clients) {
    REQUIRE(c.wait());
    const auto heard = c.result();
    done += heard.done && same(heard, expected[0]);
  }
  CHECK(done == 5);
  CHECK(refused() == 3);
}

TEST_CASE("an engine that is stopped between two worker groups tells every client") {
  std::promise<void> reached, release;
  listener running, waiting;
  troubled_engine e(waiting_at(5, reached, release));
  e.submit(ask(10, 30), running);
  reached.get_future().wait();
  e.lose_scheduler();
  e.submit(ask(20, 10), waiting);
  e.stop();
  REQUIRE(running.wait());
  REQUIRE(waiting.wait());
  CHECK(running.result().finish.at(0) == finish_reason::cancelled);
  release.set_value();
  e.wait_for(load_status::stage::stopped);
  CHECK(e.script->runners == 1);
}

TEST_CASE("a replica that fails as it starts is started again until it does not, and no request is blamed") {
  const auto work = mixed_work();
  const auto expected = undisturbed(work);
  auto script = failing([](int step) {
    if (step == 4)
      fail_device();
  });
  script->on_runner = [](int n) {
    if (n > 1 && n < 8)
      throw std::bad_alloc();
  };
  troubled_engine e(script);
  check_same(e, work, expected);
  CHECK(e.settled()->total.restarts == 7);
}

TEST_CASE("an engine that is killed itself says so to its listener and to every client") {
  std::promise<void> reached, release;
  troubled_engine e(waiting_at(5, reached, release));
  listener running, late;
  e.submit(ask(10, 30), running);
  reached.get_future().wait();
  caf::anon_send_exit(e.engine, caf::exit_reason::kill);
  CHECK(e.wait_for(load_status::stage::failed).why->message == "the supervisor of the engine was ended from outside");
  REQUIRE(running.wait()); // before the step, and all behind it, can go on
  release.set_value();
  CHECK(running.result().failed->message == "the engine has stopped");
  e.submit(ask(1, 1), late);
  REQUIRE(late.wait());
  CHECK(late.result().failed->message == "the engine has stopped");
}

TEST_CASE("after cancellations, time-outs and restarts no actor's queue seems to hold messages") {
  std::mt19937 random(5);
  const auto queued = [] {
    std::string kinds;
    for (const auto& each : actor_counts::all())
      if (each.queued > 0)
        kinds += each.kind + ' ' + std::to_string(each.queued) + ' ';
    return kinds;
  };
  troubled_engine e;
  for (int round = 0; round < 3; ++round) { // with a restart each
    actor_counts::begin_watch();
    std::deque<listener> clients(24);
    std::vector<request_actor> requests;
    for (std::size_t i = 0; i < clients.size(); ++i) {
      auto g = ask(1 + static_cast<int>(random() % 60), 30);
      if (i % 3 == 0)
        g.timeout = std::chrono::milliseconds(1 + random() % 20);
      requests.push_back(e.submit(g, clients[i]));
      if (i % 4 == 1)
        caf::anon_send(requests[random() % requests.size()], cancel_atom::value);
      if (i == 15) { // what is queued now is handled while nobody watches
        actor_counts::end_watch();
        std::this_thread::yield();
        actor_counts::begin_watch();
      }
    }
    e.lose_scheduler();
    for (auto& client : clients)
      REQUIRE(client.wait());
    REQUIRE(e.settled().has_value());
    for (int i = 0; i < 300'000 && !queued().empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(queued() == "");
    actor_counts::end_watch();
  }
}
