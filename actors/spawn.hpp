// How an actor here is made: its state is a plain class State with `static constexpr const char* name`, a constructor
// State(pointer self, args...) and `behavior_type make_behavior()`. The state is built on the actor's own thread, may be
// move-only, and what its constructor or a handler throws becomes the reason of the actor's end (faults.hpp), not an
// exception in whoever spawned it. A state with `void lost(const std::exception_ptr&) noexcept` hears first what a handler
// threw.
#pragma once

#include "actors/faults.hpp"
#include "runtime/support/threads.hpp"

#include <caf/actor_system.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <optional>
#include <utility>

namespace troupe {

template <class State>
struct box {
  const char* name = State::name;
  std::optional<State> state;
};

template <class Interface, class State, caf::spawn_options Options = caf::no_spawn_options, class... Args>
Interface spawn_state(caf::actor_system& system, Args... args) {
  auto body = [](typename Interface::template stateful_pointer<box<State>> self, Args... xs) ->
    typename Interface::behavior_type {
      self->set_exception_handler([self](std::exception_ptr& thrown) {
        if constexpr (requires(State & state) { state.lost(thrown); })
          if (auto& state = self->state.state)
            state->lost(thrown);
        return exit_reason_of(thrown);
      });
      self->state.state.emplace(self, std::move(xs)...);
      return self->state.state->make_behavior();
    };
  if constexpr (caf::has_detach_flag(Options))
    expect_threads(1);
  return system.spawn<Options>(body, std::move(args)...);
}

} // namespace troupe
