// Where faults on purpose enter actors (runtime/support/fault_injection.hpp): at a message, before or while its handler
// runs. An actor belongs to the replica and stage within whose scope it was spawned. On the actor's thread.
#pragma once

#include "runtime/support/fault_injection.hpp"
#include "runtime/support/meter.hpp"

#include <exception>
#include <stdexcept>
#include <thread>
#include <utility>

namespace troupe {

struct actor_place {
  int replica = -1, stage = -1; // -1: of none
};

/// While it lives, actors that this thread spawns are of this place.
class spawning_in {
public:
  explicit spawning_in(actor_place here) : before_(std::exchange(now_, here)) {}
  ~spawning_in() { now_ = before_; }
  spawning_in(const spawning_in&) = delete;
  spawning_in& operator=(const spawning_in&) = delete;

  static actor_place now() { return now_; }

private:
  static inline thread_local constinit actor_place now_{};
  actor_place before_;
};

inline constexpr const char* injected = "a fault was injected (--fault-injection)";

/// Ends an actor as if somebody else had.
struct killed_on_purpose final : std::exception {
  const char* what() const noexcept override { return injected; }
};

/// Calls `handle`, which handles a message, unless a fault strikes. For when there is a plan.
template <class Handle>
auto pass_fault_door(const char* kind, actor_place at, const Handle& handle) {
  using effect = fault_rule::effect;
  const auto fault = fault_injection::pass(kind, at.replica, at.stage);
  if (!fault)
    return handle();
  switch (fault->what) {
    case effect::exception: throw std::runtime_error(injected);
    case effect::kill: throw killed_on_purpose();
    case effect::out_of_memory: {
      meter little({.bytes = fault->bytes});
      return little.run(handle);
    }
    case effect::delay: std::this_thread::sleep_for(fault->pause); break;
    case effect::refusal: break; // of disks and sockets
  }
  return handle();
}

} // namespace troupe
