// How actors are made here. The state is a plain class with `static constexpr const char* name`, a constructor
// State(pointer self, args...) and `behavior_type make_behavior()`. It is built on the actor's own thread and may be
// move-only. An exception of its constructor or of a handler becomes the actor's exit reason (faults.hpp) and does not
// reach the spawner. A state may define `void on_exception(const std::exception_ptr&) noexcept` to see it first.
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
        if constexpr (requires(State & state) { state.on_exception(thrown); })
          if (auto& state = self->state.state)
            state->on_exception(thrown);
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
