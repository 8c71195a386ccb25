// Actors that have a message but could not be scheduled, because CAF had no memory to queue them: without this list
// they would never run again, not even to end. An actor that has handled a message schedules them; a thread that
// handles none, such as a loader's, waits until it can. Any thread.
#pragma once

#include <caf/actor_system.hpp>
#include <caf/execution_unit.hpp>
#include <caf/mailbox_element.hpp>
#include <caf/resumable.hpp>
#include <caf/scheduler/abstract_coordinator.hpp>

#include <atomic>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

namespace troupe {

class unwoken {
public:
  /// A base of actors that can stand in the list. It brings the link, as there is no memory for one.
  class entry {
    friend class unwoken;
    caf::resumable* job_ = nullptr;
    caf::actor_system* system_ = nullptr; // its own: a process may have several
    entry* next_ = nullptr;
  };

  /// How often a thread that handles no message tries, as nobody may ever come by again, each 10 ms. A simulation, whose one
  /// thread cannot wait for another, sets 0, and wakes them itself.
  static inline int tries = 1000;

  /// `job` has the reference to its actor that it needs while it is queued, and is in no queue: only one thread has
  /// found its actor asleep.
  static void add(entry& of, caf::resumable* job, caf::actor_system& system) noexcept {
    of.job_ = job;
    of.system_ = &system;
    push(of);
    for (int i = 0; i < tries && handling_ == 0 && first_.load(std::memory_order_relaxed); ++i) {
      wake();
      std::this_thread::sleep_for(std::chrono::milliseconds(i > 0 ? 10 : 0));
    }
  }

  /// Schedules all of them; who cannot be scheduled yet stays.
  static void wake() noexcept {
    if (!first_.load(std::memory_order_relaxed))
      return;
    for (auto* each = first_.exchange(nullptr, std::memory_order_acquire); each;) {
      auto* next = each->next_; // once it is scheduled, it may end
      try {
        each->system_->scheduler().enqueue(each->job_);
      } catch (const std::bad_alloc&) {
        push(*each);
      }
      each = next;
    }
  }

  /// A message is handled; wakes them at the end of the scope.
  class later {
  public:
    later() { ++handling_; }
    ~later() {
      --handling_;
      wake();
    }
    later(const later&) = delete;
    later& operator=(const later&) = delete;
  };

private:
  static void push(entry& of) noexcept {
    of.next_ = first_.load(std::memory_order_relaxed);
    while (!first_.compare_exchange_weak(of.next_, &of, std::memory_order_release, std::memory_order_relaxed))
      ;
  }

  static inline constinit std::atomic<entry*> first_ = nullptr;
  static inline thread_local constinit int handling_ = 0; // messages, by this thread
};

/// An event-based actor that is woken so.
template <class Base>
class wakeable : public Base, public unwoken::entry {
public:
  using Base::Base;

  void launch(caf::execution_unit* unit, bool lazy, bool hide) override {
    if (this->getf(caf::abstract_actor::is_detached_flag))
      return launch_thread(unit, lazy, hide);
    try {
      Base::launch(unit, lazy, hide);
    } catch (const std::bad_alloc&) {
      unwoken::add(*this, this, this->home_system()); // it begins with its first turn
    }
  }

  void launch_thread(caf::execution_unit* unit, bool lazy, bool hide) {
    try {
      Base::launch(unit, lazy, hide);
    } catch (...) {
      this->unregister_from_system(); // else the system's end would wait for it
      throw;
    }
  }

  void enqueue(caf::mailbox_element_ptr what, caf::execution_unit* unit) override {
    try {
      Base::enqueue(std::move(what), unit);
    } catch (const std::bad_alloc&) {
      if (this->mailbox().closed()) // there was none for an answer from an actor that has ended
        throw;
      // It has the message, and CAF a reference for its way through the queue.
      unwoken::add(*this, this, this->home_system());
    }
  }
};

} // namespace troupe
