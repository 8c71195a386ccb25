// An event-based actor that a detached one, its host, runs on its own thread when it sends it a message: no other thread
// wakes up for that, and none to take the answer. What others send it runs where event-based actors do. Owned by the
// host, on its thread.
#pragma once

#include <caf/actor_cast.hpp>
#include <caf/actor_system.hpp>
#include <caf/execution_unit.hpp>
#include <caf/mailbox_element.hpp>
#include <caf/message_id.hpp>
#include <caf/resumable.hpp>
#include <caf/scheduler/abstract_coordinator.hpp>

#include <utility>

namespace troupe {

template <class Handle>
class companion final : public caf::execution_unit {
public:
  companion(caf::actor_system& system, Handle actor)
    : execution_unit(&system),
      actor_(std::move(actor)),
      runs_(dynamic_cast<caf::resumable*>(caf::actor_cast<caf::abstract_actor*>(actor_))) {}

  /// The companion has handled the message when this returns, unless another thread runs it just now.
  template <class Host, class... Content>
  void send(Host* host, Content&&... content) {
    caf::actor_cast<caf::abstract_actor*>(actor_)->enqueue(
      caf::make_mailbox_element(caf::actor_cast<caf::strong_actor_ptr>(host), caf::make_message_id(), {},
                                std::forward<Content>(content)...),
      this);
    while (due_)
      run(std::exchange(due_, nullptr));
  }

  /// Called by those who send from this thread. All other actors, which the companion sends to, run elsewhere.
  void exec_later(caf::resumable* job) override {
    if (job == runs_)
      due_ = job;
    else
      system().scheduler().enqueue(job);
  }

private:
  // As CAF's workers do: a job brings a reference to its actor.
  void run(caf::resumable* job) {
    switch (job->resume(this, 1)) {
      case caf::resumable::resume_later: system().scheduler().enqueue(job); break; // the host has other things to do
      case caf::resumable::done:
      case caf::resumable::awaiting_message: intrusive_ptr_release(job); break;
      case caf::resumable::shutdown_execution_unit: break; // no actor returns it
    }
  }

  Handle actor_;
  caf::resumable* const runs_;
  caf::resumable* due_ = nullptr;
};

} // namespace troupe
