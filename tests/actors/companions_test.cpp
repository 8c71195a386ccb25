// Actors that a detached one runs on its own thread.
#include "actors/companions.hpp"

#include <caf/actor_system_config.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <doctest/doctest.h>

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace troupe;

namespace {

struct companion_log {
  struct entry {
    int number;
    std::thread::id thread;
  };
  std::mutex mutex;
  std::vector<entry> handled, passed_on, forwarded;
  std::thread::id host;

  void add(std::vector<entry>& to, int number) {
    const std::lock_guard lock(mutex);
    to.push_back({number, std::this_thread::get_id()});
  }
};

class companion_worker final : public caf::event_based_actor, public companion {
public:
  companion_worker(caf::actor_config& config, std::shared_ptr<companion_log> log, caf::actor next, caf::actor third)
    : caf::event_based_actor(config), log_(std::move(log)), next_(std::move(next)), third_(std::move(third)) {
    set_exception_handler([](std::exception_ptr&) { return caf::make_error(caf::sec::runtime_error); });
  }

  caf::behavior make_behavior() override {
    return {[this](int number) {
      if (number < 0)
        throw std::runtime_error("a negative number");
      if (next_) {
        send(next_, number);
        send(third_, number);
        log_->add(log_->handled, number);
      } else {
        log_->add(log_->passed_on, number);
      }
    }};
  }

private:
  std::shared_ptr<companion_log> log_;
  caf::actor next_, third_;
};

class companion_client final : public caf::event_based_actor {
public:
  companion_client(caf::actor_config& config, std::shared_ptr<companion_log> log)
    : caf::event_based_actor(config), log_(std::move(log)) {}

  caf::behavior make_behavior() override {
    return {[this](int number) { log_->add(log_->forwarded, number); }};
  }

private:
  std::shared_ptr<companion_log> log_;
};

template <class Condition>
bool soon(const Condition& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  while (!holds() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return holds();
}

/// A host and a companion, which passes on what it gets to another one, and to an actor that is none.
struct companion_scene {
  struct sharing : caf::actor_system_config {
    sharing() {
      set("scheduler.policy", caf::atom("sharing"));
      set("scheduler.max-threads", std::size_t(2));
    }
  };

  sharing config;
  caf::actor_system system{config};
  std::shared_ptr<companion_log> log = std::make_shared<companion_log>();
  caf::actor third, next, worker, host;

  companion_scene() {
    third = system.spawn<companion_client>(log);
    next = system.spawn<companion_worker>(log, caf::actor(), caf::actor());
    worker = system.spawn<companion_worker>(log, next, third);
    host = system.spawn<caf::detached>([log = log, worker = worker](caf::event_based_actor* self) -> caf::behavior {
      log->host = std::this_thread::get_id();
      const auto with = std::make_shared<companions>(self->system());
      return {[log, self, worker, with](int number) {
        with->send(self, worker, number);
        const std::lock_guard lock(log->mutex);
        return static_cast<int>(log->handled.size());
      }};
    });
  }

  ~companion_scene() {
    for (const auto& each : {host, worker, next, third})
      caf::anon_send_exit(each, caf::exit_reason::user_shutdown);
  }

  /// Has the host pass it on; how many the companion has handled by then.
  int tell(int number) {
    caf::scoped_actor self{system};
    int handled = -1;
    self->request(host, caf::infinite, number).receive([&](int count) { handled = count; }, [](const caf::error&) {});
    return handled;
  }

  /// From then on the companion is idle whenever the host sends.
  void settle() {
    REQUIRE(soon([&] {
      const auto before = tell(0);
      const std::lock_guard lock(log->mutex);
      return before > 0 && log->handled.back().thread == log->host;
    }));
  }
};

} // namespace

TEST_CASE("a companion handles what its host sends at once, on the host's thread; others' work goes on elsewhere") {
  companion_scene scene;
  scene.settle();
  auto& log = *scene.log;
  const auto from = scene.tell(0);
  for (int i = 1; i <= 200; ++i)
    REQUIRE(scene.tell(i) == from + i);
  for (int i = 1; i <= 200; ++i) {
    const auto& entry = log.handled[static_cast<std::size_t>(from + i - 1)];
    CHECK(entry.number == i);
    CHECK(entry.thread == log.host);
  }
  const auto all_forwarded = [&] {
    const std::lock_guard lock(log.mutex);
    return log.forwarded.size() == log.handled.size();
  };
  REQUIRE(soon(all_forwarded));
  REQUIRE(log.forwarded.size() == log.handled.size());
  for (std::size_t i = 0; i < log.forwarded.size(); ++i) {
    CHECK(log.forwarded[i].number == log.handled[i].number);
    CHECK(log.forwarded[i].thread != log.host);
  }
}

TEST_CASE("what a companion sends to another is handled on the host's thread, too, before the host goes on") {
  companion_scene scene;
  scene.settle();
  auto& log = *scene.log;
  const auto passed_on_here = [&] { // so the other one is idle, too
    scene.tell(0);
    const std::lock_guard lock(log.mutex);
    return log.passed_on.size() == log.handled.size() && log.passed_on.back().thread == log.host;
  };
  REQUIRE(soon(passed_on_here));
  for (int i = 1; i <= 200; ++i) {
    scene.tell(i);
    const std::lock_guard lock(log.mutex);
    REQUIRE(log.passed_on.size() == log.handled.size());
    CHECK(log.passed_on.back().number == i);
    CHECK(log.passed_on.back().thread == log.host);
  }
}

TEST_CASE("what a companion sends to an actor that is none runs elsewhere, in order") {
  companion_scene scene;
  scene.settle();
  auto& log = *scene.log;
  const auto from = scene.tell(0);
  for (int i = 1; i <= 200; ++i)
    scene.tell(i);
  REQUIRE(soon([&] {
    const std::lock_guard lock(log.mutex);
    return log.forwarded.size() == static_cast<std::size_t>(from) + 200;
  }));
  for (int i = 1; i <= 200; ++i) {
    const auto& entry = log.forwarded[static_cast<std::size_t>(from + i - 1)];
    CHECK(entry.number == i);
    CHECK(entry.thread != log.host);
  }
}

TEST_CASE("companions that wait for their turn when their host fails have it elsewhere") {
  companion_scene scene;
  scene.settle();
  auto& log = *scene.log;
  {
    companions with(scene.system);
    caf::actor_cast<caf::abstract_actor*>(scene.next)
      ->enqueue(caf::make_mailbox_element(nullptr, caf::make_message_id(), {}, 77), &with);
  }
  CHECK(soon([&] {
    const std::lock_guard lock(log.mutex);
    return !log.passed_on.empty() && log.passed_on.back().number == 77;
  }));
}

TEST_CASE("what others send to a companion does not run on the host's thread") {
  companion_scene scene;
  scene.settle();
  const auto before = static_cast<std::size_t>(scene.tell(0));
  caf::anon_send(scene.worker, 42);
  const auto handled = [&] {
    const std::lock_guard lock(scene.log->mutex);
    return scene.log->handled.size() > before;
  };
  REQUIRE(soon(handled));
  CHECK(scene.log->handled.back().number == 42);
  CHECK(scene.log->handled.back().thread != scene.log->host);
}

TEST_CASE("a companion that fails ends alone: its host goes on, and sends to nobody") {
  companion_scene scene;
  scene.settle();
  caf::scoped_actor self{scene.system};
  self->monitor(scene.worker);
  const auto handled = scene.tell(7);
  CHECK(scene.tell(-1) == handled);
  bool down = false;
  self->receive([&](const caf::down_msg& message) { down = message.source == scene.worker.address(); });
  CHECK(down);
  CHECK(scene.tell(8) == handled);
}
