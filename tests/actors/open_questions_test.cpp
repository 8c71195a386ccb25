// Questions that are open when the actor that has them ends (actors/open_questions.hpp).
#include "actors/engine.hpp"
#include "actors/messages.hpp"
#include "actors/open_questions.hpp"
#include "actors/spawn.hpp"
#include "runtime/engine/loading/loaded_model.hpp"
#include "tests/actors/failing_memory.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/send.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <doctest/doctest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

using namespace troupe;

namespace {

using asked_actor = caf::typed_actor<caf::replies_to<int>::with<int>, caf::reacts_to<std::string>>;

/// Takes numbers as questions, and answers all when it is told a word: but "fail" ends it.
class slow_to_answer {
public:
  static constexpr const char* name = "slow";

  explicit slow_to_answer(asked_actor::pointer self) : self_(self) {}

  asked_actor::behavior_type make_behavior() {
    return {[this](int) -> caf::result<int> { return open_.take<int>(self_).promise; },
            [this](const std::string& word) {
              if (word == "fail")
                throw std::runtime_error("a fault");
              open_.answer_all(7);
            }};
  }

private:
  asked_actor::pointer self_;
  open_questions open_;
};

/// Answers at once.
class quick_to_answer {
public:
  static constexpr const char* name = "quick";

  explicit quick_to_answer(asked_actor::pointer) {}

  asked_actor::behavior_type make_behavior() {
    return {[](int) -> caf::result<int> { return 7; }, [](const std::string&) {}};
  }
};

struct answers {
  std::vector<int> given;
  int errors = 0;
};

struct fixture {
  struct testing_config : caf::actor_system_config {
    testing_config() { set("scheduler.policy", caf::atom("testing")); }
  } config;
  caf::actor_system system{config};
  caf::scheduler::test_coordinator& coordinator = dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler());
  asked_actor asked = spawn_state<asked_actor, slow_to_answer>(system);
  std::shared_ptr<answers> heard = std::make_shared<answers>();

  void ask(int times) {
    for (; times > 0; --times)
      system.spawn([asked = asked, heard = heard](caf::event_based_actor* self) {
        self->request(asked, caf::infinite, 1)
          .then([heard](int answer) { heard->given.push_back(answer); },
                [heard](const caf::error&) { ++heard->errors; });
      });
    coordinator.run();
  }
};

} // namespace

TEST_CASE_FIXTURE(fixture, "whoever asked an actor that is killed hears so, and each answer comes once") {
  ask(2);
  caf::anon_send(asked, "now");
  coordinator.run();
  CHECK(heard->given == std::vector{7, 7});
  ask(3);
  CHECK(heard->errors == 0);
  caf::anon_send_exit(asked, caf::exit_reason::kill);
  coordinator.run();
  CHECK(heard->errors == 3);
  CHECK(heard->given.size() == 2);
  ask(1); // nobody is there any more
  CHECK(heard->errors == 4);
}

TEST_CASE_FIXTURE(fixture, "whoever asked an actor that fails hears so") {
  ask(2);
  caf::anon_send(asked, "fail");
  coordinator.run();
  CHECK(heard->errors == 2);
}

TEST_CASE_FIXTURE(fixture, "whoever asked an actor that fails, and has no memory until it has ended, hears so") {
  ask(3);
  caf::anon_send(asked, "fail");
  test::failing_allocation none(1, true);
  none.arm();
  coordinator.run_once();
  none.disarm();
  CHECK(none.happened());
  coordinator.run();
  CHECK(heard->errors == 3);
}

TEST_CASE_FIXTURE(fixture, "whichever allocation fails while an actor answers at once, whoever asked hears of it") {
  int failures = 0;
  for (int nth = 1;; ++nth) {
    CAPTURE(nth);
    caf::anon_send_exit(asked, caf::exit_reason::kill);
    asked = spawn_state<asked_actor, quick_to_answer>(system);
    coordinator.run();
    *heard = {};
    system.spawn([asked = asked, heard = heard](caf::event_based_actor* self) {
      self->request(asked, caf::infinite, 1)
        .then([heard](int answer) { heard->given.push_back(answer); }, [heard](const caf::error&) { ++heard->errors; });
    });
    coordinator.run_once(); // it asks
    test::failing_allocation failing(nth);
    failing.arm();
    coordinator.run_once();
    failing.disarm();
    coordinator.run();
    CHECK(heard->given.size() + static_cast<std::size_t>(heard->errors) == 1);
    if (!failing.happened())
      break;
    failures += heard->errors;
  }
  CHECK(failures > 0);
}
