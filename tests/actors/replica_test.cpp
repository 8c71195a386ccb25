// A replica's waits before it is started again, asked by an actor in the engine's place.
#include "actors/replica.hpp"
#include "tests/actors/worker_group.hpp"

using namespace troupe;
using namespace troupe::testing;

namespace {

struct starts {
  loaded_model_ptr model;
  std::vector<std::string> lines = {};
  std::vector<std::chrono::milliseconds> waits = {};
};

/// Its replica cannot be started a few times; then the cause is known to be gone.
class engine_of_one {
public:
  static constexpr const char* name = "engine";

  engine_of_one(engine_actor::pointer self, std::shared_ptr<starts> seen) {
    replica one(self, 0, replica_of(seen->model));
    for (int i = 0; i < 5; ++i) {
      if (i == 3)
        one.forgive();
      CHECK_FALSE(one.take_restart());
      one.put_off({errc::out_of_memory, "no thread is left", {}});
      const auto next = one.take_restart();
      REQUIRE(next);
      seen->lines.push_back(next->line);
      seen->waits.push_back(next->wait);
      CHECK(next->why == "no thread is left");
      CHECK_FALSE(one.has_failed());
    }
    self->quit();
  }

  engine_actor::behavior_type make_behavior() {
    return engine_that([](const admission_wanted&) {}, [](const move_wanted&) {},
                       [](load_atom, const load_report_ptr&) {}, [](const deadline_set&) {}, [](deadlines_due) {},
                       [](record_atom, const step_record_ptr&) {});
  }
};

} // namespace

TEST_CASE("a replica that cannot be started is started again after ever longer, until the cause is gone") {
  worker_group others; // for their actor system
  const auto seen = std::make_shared<starts>(starts{others.model});
  spawn_state<engine_actor, engine_of_one>(others.system, seen);
  others.coordinator.run();
  using namespace std::chrono_literals;
  CHECK(seen->waits == std::vector<std::chrono::milliseconds>{0ms, 50ms, 100ms, 0ms, 50ms});
  for (const auto& line : seen->lines)
    CHECK(line == "a part of the engine could not be started, and then was: no thread is left");
}
