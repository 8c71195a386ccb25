// Detached actors whose thread the system refuses.
#include <cstddef>

#if defined(__GLIBC__) // which lets a program choose the stacks of threads to come
#include "actors/spawn.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/typed_actor.hpp>
#include <doctest/doctest.h>

#include <pthread.h>

#include <system_error>

using namespace troupe;

namespace {

using idle_actor = caf::typed_actor<caf::reacts_to<int>>;

struct idle_state {
  static constexpr const char* name = "idle";
  explicit idle_state(idle_actor::pointer) {}
  idle_actor::behavior_type make_behavior() {
    return {[](int) {}};
  }
};

/// No thread starts: its stack would be larger than what a process can address.
class no_threads {
public:
  no_threads() {
    REQUIRE(pthread_getattr_default_np(&before_) == 0);
    auto vast = before_;
    REQUIRE(pthread_attr_setstacksize(&vast, std::size_t(1) << 52) == 0);
    REQUIRE(pthread_setattr_default_np(&vast) == 0);
  }
  ~no_threads() { pthread_setattr_default_np(&before_); }
  no_threads(const no_threads&) = delete;
  no_threads& operator=(const no_threads&) = delete;

private:
  pthread_attr_t before_;
};

} // namespace

TEST_CASE("An actor whose thread cannot start leaves nothing that its system waits for") {
  caf::actor_system_config config;
  caf::actor_system system(config);
  const auto actors = system.registry().running(), threads = system.detached_actors();
  {
    const no_threads refused;
    // As spawn_state() does once expect_threads() has found that one could start.
    using refused_actor = counted_actor<idle_actor, idle_state>;
    CHECK_THROWS_AS((system.spawn<refused_actor, caf::detached>()), std::system_error);
  }
  CHECK(system.detached_actors() == threads);
  CHECK(system.registry().running() == actors);
  spawn_state<idle_actor, idle_state, caf::detached>(system); // the next one runs, and ends as nobody holds it
} // which would hang
#endif
