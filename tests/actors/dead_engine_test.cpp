// What is left of an engine that has ended, by virtual time.
#include "actors/actor_hooks.hpp"
#include "tests/actors/troubled_engine.hpp"

#include <caf/scheduler/test_coordinator.hpp>

using namespace troupe;
using namespace troupe::testing;

namespace {

/// No actor has a thread of its own.
struct by_events final : actor_hooks {
  by_events() { now = this; }
  ~by_events() override { now = nullptr; }
  void queued(const char*, caf::local_actor&) override {}
  bool before(const handler&, const caf::mailbox_element&) override { return true; }
  void after(const handler&, const caf::mailbox_element&, caf::invoke_message_result) override {}
  void ended(const char*, caf::local_actor&) noexcept override {}
};

struct virtual_time : caf::actor_system_config {
  virtual_time() { set("scheduler.policy", caf::atom("testing")); }
};

} // namespace

TEST_CASE("an engine that has ended is freed soon, though a request that ended had ten minutes") {
  const by_events hooks;
  virtual_time config;
  caf::actor_system system(config);
  auto& coordinator = dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler());
  auto engine = spawn_engine(system, small(), [](const load_status&, const loaded_model_ptr&) {});
  coordinator.run();
  auto g = ask(5, 3);
  g.timeout = std::chrono::minutes(10);
  listener client;
  spawn_request(system, engine, std::make_shared<const generation>(g), client_line(client.sink()));
  coordinator.run();
  REQUIRE(client.result().done);
  caf::anon_send_exit(engine, caf::exit_reason::user_shutdown);
  coordinator.run();
  const auto address = engine.address();
  engine = engine_actor();
  coordinator.advance_time(std::chrono::seconds(2));
  coordinator.run();
  CHECK_FALSE(caf::actor_cast<caf::strong_actor_ptr>(address));
}
