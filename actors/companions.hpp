// Event-based actors that a detached one, their host, runs on its own thread: where its message wakes one of them, and
// that one's wakes the next. No other thread wakes up for these, and none to take the answer. What others send them runs
// where event-based actors do. Owned by the host, on its thread.
#pragma once

#include "actors/unwoken.hpp"

#include <caf/actor_cast.hpp>
#include <caf/actor_system.hpp>
#include <caf/execution_unit.hpp>
#include <caf/mailbox_element.hpp>
#include <caf/message_id.hpp>
#include <caf/resumable.hpp>
#include <caf/scheduler/abstract_coordinator.hpp>

#include <deque>
#include <new>
#include <utility>

namespace troupe {

/// A base of actors that may be run so. Their handlers are brief, and call no functions of clients; functions that had
/// no memory are called again once the host has handled its message.
class companion {
protected:
  virtual ~companion() = default;
};

class companions final : public caf::execution_unit {
public:
  explicit companions(caf::actor_system& system) : execution_unit(&system) {}
  /// Where the host fails, those that have not had their turn have it elsewhere: else they would never have one again.
  ~companions() override {
    for (auto* job : due_)
      hand_over(job);
  }
  companions(const companions&) = delete;
  companions& operator=(const companions&) = delete;

  /// When this returns, the companions have handled the message and what followed from it, unless another thread runs
  /// them just now.
  template <class Host, class Handle, class... Content>
  void send(Host* host, const Handle& to, Content&&... content) {
    caf::actor_cast<caf::abstract_actor*>(to)->enqueue(
      caf::make_mailbox_element(caf::actor_cast<caf::strong_actor_ptr>(host), caf::make_message_id(), {},
                                std::forward<Content>(content)...),
      this);
    while (!due_.empty()) {
      auto* job = due_.front();
      due_.pop_front();
      run(job);
    }
  }

  /// Called by those who send from this thread, if nobody runs the receiver yet.
  void exec_later(caf::resumable* job) override {
    if (dynamic_cast<const companion*>(job))
      due_.push_back(job);
    else
      system().scheduler().enqueue(job);
  }

private:
  // Runs a job as CAF's workers do: it brings a reference to its actor.
  void run(caf::resumable* job) {
    switch (job->resume(this, 1)) {
      case caf::resumable::resume_later: hand_over(job); break; // the host has other things to do
      case caf::resumable::done:
      case caf::resumable::awaiting_message: intrusive_ptr_release(job); break;
      case caf::resumable::shutdown_execution_unit: break; // no actor returns it
    }
  }

  void hand_over(caf::resumable* job) {
    try {
      system().scheduler().enqueue(job);
    } catch (const std::bad_alloc&) {
      if (auto* one = dynamic_cast<unwoken::entry*>(job))
        unwoken::insist(*one);
    }
  }

  std::deque<caf::resumable*> due_; // in the order in which they were woken
};

} // namespace troupe
