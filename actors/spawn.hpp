// How actors are made here. The state is a plain class with `static constexpr const char* name`, a constructor
// State(pointer self, args...) and `behavior_type make_behavior()`. It is built on the actor's own thread and may be
// move-only. An exception of its constructor or of a handler becomes the actor's exit reason (faults.hpp) and does not
// reach the spawner. A state may define `void on_exception(const std::exception_ptr&) noexcept` to see it first,
// `using accompanies = companion` if the executor's thread may run the actor (companions.hpp), and `inner()`, what decides
// within it, for simulations (actor_hooks.hpp).
#pragma once

#include "actors/actor_counts.hpp"
#include "actors/actor_hooks.hpp"
#include "actors/companions.hpp"
#include "actors/fault_door.hpp"
#include "actors/faults.hpp"
#include "actors/unwoken.hpp"
#include "runtime/support/machine/threads.hpp"

#include <caf/actor_system.hpp>
#include <caf/invoke_message_result.hpp>
#include <caf/message.hpp>
#include <caf/sec.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <cstddef>
#include <new>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace troupe {

template <class State>
struct box {
  const char* name = State::name;
  std::optional<State> state;
};

template <class State>
struct companion_base {
  struct type {};
};

template <class State>
requires requires { typename State::accompanies; }
struct companion_base<State> {
  using type = typename State::accompanies;
};

/// Counts its messages while somebody watches (actor_counts.hpp). Faults on purpose enter here (fault_door.hpp).
template <class Interface, class State, class... Args>
class counted_actor final : public wakeable<typename Interface::template stateful_base<box<State>>>,
                            public companion_base<State>::type {
public:
  using super = wakeable<typename Interface::template stateful_base<box<State>>>;

  explicit counted_actor(caf::actor_config& config, Args... args)
    : super(config), arguments_(std::move(args)...), place_(spawning_in::now()), count_(kind()) {}

  void enqueue(caf::mailbox_element_ptr what, caf::execution_unit* unit) override {
    if (actor_counts::watched())
      count_.queued();
    if (auto* hooks = actor_hooks::now)
      hooks->queued(State::name, *this);
    super::enqueue(std::move(what), unit);
  }

  // Every message passes here once, whether it is handled, dropped, or a response that came too late; what is skipped
  // comes again.
  caf::invoke_message_result consume(caf::mailbox_element& what) override {
    const unwoken::later end;
    const bool counted = count_.take();
    auto* hooks = actor_hooks::now;
    const bool armed = fault_injection::armed();
    if (hooks || armed)
      this->current_element_ = &what; // which CAF answers where something throws
    if (hooks && !hooks->before(seen(), what))
      return caf::invoke_message_result::dropped;
    const auto asked = what.mid.is_request() ? what.mid : caf::make_message_id();
    const auto asker = asked.is_request() ? what.sender : nullptr;
    const auto answer_here = [&] {
      what.mid = caf::make_message_id();
      refuse(asker, asked);
    };
    const auto handle = [&] {
      try {
        return super::consume(what);
      } catch (const std::bad_alloc&) { // CAF 0.17 would answer, and end the process where it has no memory for that
        answer_here();
        throw;
      } catch (...) {
        // CAF 0.17 has moved the sender into a promise, or into an answer that it may have had no memory to send, and would
        // answer by it.
        if (!what.sender)
          answer_here();
        throw;
      }
    };
    const auto result = armed ? pass_fault_door(State::name, place_, handle) : handle();
    if (hooks)
      hooks->after(seen(), what, result);
    if (result == caf::invoke_message_result::skipped) {
      if (counted)
        count_.queued();
    } else if (actor_counts::watched()) {
      count_.handled();
    }
    return result;
  }

  bool cleanup(caf::error&& why, caf::execution_unit* unit) override {
    count_.end();
    if (auto* hooks = actor_hooks::now)
      hooks->ended(State::name, *this);
    refuse(std::exchange(unanswered_, nullptr), unanswered_id_);
    return super::cleanup(std::move(why), unit);
  }

protected:
  typename Interface::behavior_type make_behavior() override {
    if (this->getf(caf::abstract_actor::is_detached_flag))
      name_thread(State::name);
    this->set_exception_handler([this](std::exception_ptr& thrown) {
      auto& state = this->state.state;
      if constexpr (requires(State & state) { state.on_exception(thrown); })
        if (state)
          state->on_exception(thrown);
      return exit_reason_of(thrown, state.has_value());
    });
    const spawning_in here(place_);
    std::apply([this](Args&... args) { this->state.state.emplace(this, std::move(args)...); }, arguments_);
    return this->state.state->make_behavior();
  }

private:
  // Whoever has an answer already, or gets one of a promise that is kept, ignores a second one.
  void refuse(const caf::strong_actor_ptr& asker, caf::message_id asked) noexcept {
    if (!asker)
      return;
    try {
      asker->enqueue(this->ctrl(), asked.response_id(), caf::make_message(caf::make_error(caf::sec::runtime_error)),
                     this->context());
    } catch (const std::bad_alloc&) { // once more when this has ended
      unanswered_ = asker;
      unanswered_id_ = asked;
    }
  }

  actor_hooks::handler seen() {
    actor_hooks::handler who{State::name, *this};
    if constexpr (requires(State & state) { state.inner(); })
      if (auto& state = this->state.state) {
        who.inner_type = &typeid(std::remove_cvref_t<decltype(state->inner())>);
        who.inner = &state->inner();
      }
    return who;
  }

  static actor_counts& kind() {
    static actor_counts made(State::name);
    return made;
  }

  std::tuple<Args...> arguments_;
  const actor_place place_;
  mailbox_count count_;
  caf::strong_actor_ptr unanswered_; // who asked what ended this, and has no answer for want of memory
  caf::message_id unanswered_id_;
};

template <class Interface, class State, caf::spawn_options Options = caf::no_spawn_options, class... Args>
Interface spawn_state(caf::actor_system& system, Args... args) {
  if constexpr (caf::has_detach_flag(Options)) {
    if (actor_hooks::now)
      return spawn_state<Interface, State>(system, std::move(args)...);
    expect_threads(1);
  }
  return system.spawn<counted_actor<Interface, State, Args...>, Options>(std::move(args)...);
}

} // namespace troupe
