// An actor that its maker ends, even when there is no memory: the exit message is made before the actor. Owned by the
// maker, on its thread.
#pragma once

#include <caf/actor.hpp>
#include <caf/actor_addr.hpp>
#include <caf/actor_cast.hpp>
#include <caf/exit_reason.hpp>
#include <caf/mailbox_element.hpp>
#include <caf/message_id.hpp>
#include <caf/system_messages.hpp>

#include <algorithm>
#include <vector>

namespace troupe {

class child {
public:
  child()
    : farewell_(caf::make_mailbox_element(nullptr, caf::make_message_id(), {},
                                          caf::exit_msg{caf::actor_addr(), caf::exit_reason::user_shutdown})) {}

  /// Makes an actor by `spawn`, has `self` monitor it, and adds it to `all`. Throws what these do; the actor then ends.
  template <class Self, class Spawn>
  static auto add(std::vector<child>& all, Self* self, const Spawn& spawn) {
    auto& its = all.emplace_back();
    try {
      const auto made = spawn();
      its.who_ = caf::actor_cast<caf::actor>(made);
      self->monitor(made);
      return made;
    } catch (...) {
      its.end();
      all.pop_back();
      throw;
    }
  }

  /// Forgets the one with this address; whether there was one.
  static bool remove(std::vector<child>& all, const caf::actor_addr& ended) {
    return std::erase_if(all, [&](const child& each) { return each.who_.address() == ended; }) > 0;
  }

  void end() noexcept {
    if (who_ && farewell_)
      caf::actor_cast<caf::abstract_actor*>(who_)->enqueue(std::move(farewell_), nullptr);
  }

private:
  caf::actor who_;
  caf::mailbox_element_ptr farewell_; // until it is sent
};

} // namespace troupe
