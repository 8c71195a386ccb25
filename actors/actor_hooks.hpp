// What a simulation (tests/simulation) sees of actors and does to them, where they are spawned (spawn.hpp): each message
// before and after its handler, which it may end with an exception, or lose. In a simulation no actor has a thread of its own:
// whoever would be detached is event-based. Null in all other programs, at the cost of a look at a pointer.
#pragma once

#include <caf/fwd.hpp>
#include <caf/invoke_message_result.hpp>

#include <typeinfo>

namespace troupe {

class actor_hooks {
public:
  /// An actor as it handles a message.
  struct handler {
    const char* kind;                           // State::name
    caf::local_actor& self;                     //
    const std::type_info* inner_type = nullptr; // of what State::inner() gives; null: it has none, or is not made yet
    const void* inner = nullptr;
  };

  virtual ~actor_hooks() = default;

  /// On any thread that sends.
  virtual void queued(const char* kind, caf::local_actor& to) = 0;
  /// What it throws is as if the handler had. False: the message is lost.
  virtual bool before(const handler& who, const caf::mailbox_element& what) = 0;
  virtual void after(const handler& who, const caf::mailbox_element& what, caf::invoke_message_result result) = 0;
  virtual void ended(const char* kind, caf::local_actor& who) noexcept = 0;

  /// Null: there is no simulation. Set while there are no actors.
  static inline actor_hooks* now = nullptr;
};

} // namespace troupe
