// Actors that watch others (actors/watch.hpp).
#include "actors/watch.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/send.hpp>
#include <doctest/doctest.h>

#include <memory>

TEST_CASE("who watches an actor anew, which it watches already, is told of its end once more") {
  caf::actor_system_config config;
  config.set("scheduler.policy", caf::atom("testing"));
  caf::actor_system system(config);
  auto& coordinator = dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler());
  const auto watched = system.spawn([](caf::event_based_actor*) { return caf::behavior{[](int) {}}; });
  const auto told = std::make_shared<int>(0);
  const auto watcher = system.spawn([watched, told](caf::event_based_actor* self) -> caf::behavior {
    const auto peer = std::make_shared<troupe::watch<caf::actor>>(self, watched);
    self->set_down_handler([told](caf::down_msg&) { ++*told; });
    return {[self, watched, peer](int) { *peer = troupe::watch(self, watched); }};
  });
  for (int times = 0; times < 2; ++times)
    caf::anon_send(watcher, times);
  coordinator.run();
  caf::anon_send_exit(watched, caf::exit_reason::kill);
  coordinator.run();
  CHECK(*told == 1);
  caf::anon_send_exit(watcher, caf::exit_reason::kill);
  coordinator.run();
}
