// What must happen and had no memory to: an actor that has a message could not be scheduled, so that it would never run
// again, not even to end; a client's function could not take its last event. A thread of actors that has handled a message
// tries all again; one that handles none, such as a loader's, waits until its own actor can be scheduled. An engine that
// stops tries its clients' functions once more, and forgets them. Any thread.
#pragma once

#include <caf/actor_system.hpp>
#include <caf/detail/private_thread.hpp>
#include <caf/execution_unit.hpp>
#include <caf/exit_reason.hpp>
#include <caf/mailbox_element.hpp>
#include <caf/resumable.hpp>
#include <caf/scheduler/abstract_coordinator.hpp>

#include <atomic>
#include <chrono>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

namespace troupe {

class unwoken {
public:
  /// What can stand in the list. It brings the link, as there is no memory for one.
  class entry {
  public:
    explicit entry(const void* of = nullptr) : of_(of) {}

  protected:
    ~entry() = default;

  private:
    friend class unwoken;
    /// Throws bad_alloc if there is no memory yet; else it may be gone.
    virtual void try_again() = 0;
    /// It is forgotten, and in no list.
    virtual void drop() noexcept {}
    const void* const of_; // whoever forgets it
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

  /// The same; a thread that handles no message tries this one alone first, and waits, as nobody may ever come by again.
  static void insist(entry& one) noexcept {
    for (int i = 0; i < tries && handling_ == 0; ++i) {
      wait_before(i);
      try {
        return one.try_again();
      } catch (const std::bad_alloc&) {
      }
    }
    add(one);
  }

  /// Tries all again; what has no memory yet stays.
  static void wake() noexcept {
    if (!first_.load(std::memory_order_relaxed))
      return;
    const std::lock_guard alone(taken_);
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

  /// Tries those of `whom` until none is left, and drops those that never have memory: none is called once this returns.
  static void forget(const void* whom) noexcept {
    bool left = true;
    for (int i = 0; left; ++i) {
      wait_before(i);
      left = false;
      const std::lock_guard alone(taken_);
      for (auto* each = first_.exchange(nullptr, std::memory_order_acquire); each;) {
        auto* next = each->next_;
        try {
          each->of_ == whom ? each->try_again() : add(*each);
        } catch (const std::bad_alloc&) {
          left = i < tries;
          left ? add(*each) : each->drop();
        }
        each = next;
      }
    }
  }

  /// A message is handled; wakes them at the end of the outermost scope.
  class later {
  public:
    later() { ++handling_; }
    ~later() {
      if (--handling_ == 0)
        wake();
    }
    later(const later&) = delete;
    later& operator=(const later&) = delete;
  };

private:
  static void wait_before(int try_number) {
    std::this_thread::sleep_for(std::chrono::milliseconds(try_number > 0 ? 10 : 0));
  }

  static inline constinit std::atomic<entry*> first_ = nullptr;
  static inline std::recursive_mutex taken_; // held while entries are tried: what is tried may handle a message
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
    } catch (...) { // the system's end would wait for it, and for a thread that CAF has counted but could not start
      this->unregister_from_system();
      if (this->private_thread_) {
        this->cleanup(caf::exit_reason::unreachable, unit); // CAF tells the thread
        delete std::exchange(this->private_thread_, nullptr);
        this->system().dec_detached_threads();
        caf::intrusive_ptr_release(this->ctrl());
      }
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
