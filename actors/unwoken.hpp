// What must happen and had no memory to: an actor that has a message could not be scheduled, so that it would never run
// again, not even to end; a client's function could not take its last event. An actor that has handled a message tries
// again; for an actor, a thread that handles none, such as a loader's, waits until it can. Any thread.
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
  /// What can stand in the list. It brings the link, as there is no memory for one.
  class entry {
  protected:
    ~entry() = default;

  private:
    friend class unwoken;
    /// Throws bad_alloc if there is no memory yet; else it may be gone.
    virtual void try_again() = 0;
    entry* next_ = nullptr;
  };

  /// How often such a thread tries, each 10 ms. A simulation, whose one thread cannot wait for another, sets 0, and wakes
  /// them itself.
  static inline int tries = 1000;

  /// It is in no list. It is tried again when the next message is handled.
  static void add(entry& one) noexcept {
    one.next_ = first_.load(std::memory_order_relaxed);
    while (!first_.compare_exchange_weak(one.next_, &one, std::memory_order_release, std::memory_order_relaxed))
      ;
  }

  /// The same; a thread that handles no message waits, as nobody may ever come by again.
  static void insist(entry& one) noexcept {
    add(one);
    for (int i = 0; i < tries && handling_ == 0 && first_.load(std::memory_order_relaxed); ++i) {
      wake();
      std::this_thread::sleep_for(std::chrono::milliseconds(i > 0 ? 10 : 0));
    }
  }

  /// Tries all again; what has no memory yet stays.
  static void wake() noexcept {
    if (!first_.load(std::memory_order_relaxed))
      return;
    for (auto* each = first_.exchange(nullptr, std::memory_order_acquire); each;) {
      auto* next = each->next_;
      try {
        each->try_again();
      } catch (const std::bad_alloc&) {
        add(*each);
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
  static inline constinit std::atomic<entry*> first_ = nullptr;
  static inline thread_local constinit int handling_ = 0; // messages, by this thread
};

/// An event-based actor that is woken so. In the list it has the reference that it needs while it is queued, and is in no
/// queue: only one thread has found it asleep.
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
      unwoken::insist(*this); // it begins with its first turn
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
      unwoken::insist(*this);
    }
  }

private:
  void try_again() override { this->home_system().scheduler().enqueue(this); }
};

} // namespace troupe
