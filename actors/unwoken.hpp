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
#include <cstdint>
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
    std::uint64_t pass_ = 0; // the last that began before it came to the list
  };

  /// How often such a thread tries, each 10 ms. A simulation, whose one thread cannot wait for another, sets 0, and wakes
  /// them itself.
  static inline int tries = 1000;

  /// It is in no list. It is tried again when the next message is handled.
  static void add(entry& one) noexcept {
    const std::lock_guard held(access_);
    put(one);
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
    if (waking_ || !first_.load(std::memory_order_relaxed))
      return;
    waking_ = true; // what is tried may handle a message
    std::unique_lock held(access_);
    const auto pass = ++passes_;
    while (auto* one = take([pass](const entry& each) { return each.pass_ < pass; }))
      if (!retry(*one, held))
        put(*one);
    waking_ = false;
  }

  /// Tries those of `whom` until none is left, and drops those that never have memory: none is called once this returns.
  /// Not to be called by one of them.
  static void forget(const void* whom) noexcept {
    std::unique_lock held(access_);
    const auto is_its = [whom](const auto& each) { return each.of_ == whom; };
    for (int i = 0;; ++i) {
      const auto pass = ++passes_;
      while (auto* one = take([&](const entry& each) { return is_its(each) && each.pass_ < pass; })) {
        if (retry(*one, held))
          continue;
        if (i < tries) {
          put(*one);
          continue;
        }
        held.unlock();
        one->drop();
        held.lock();
      }
      if (!any(first_.load(), is_its) && !any(calls_, is_its)) // another thread may be calling one
        return;
      held.unlock();
      wait_before(1);
      held.lock();
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
  /// One that is tried: it is in no list, and may be gone before this ends.
  struct call {
    const void* of_;
    call* next_;
  };

  static void wait_before(int try_number) {
    std::this_thread::sleep_for(std::chrono::milliseconds(try_number > 0 ? 10 : 0));
  }

  // Those below are called with the lock.

  /// Behind the others, and not for the passes that have begun.
  static void put(entry& one) noexcept {
    one.next_ = nullptr;
    one.pass_ = passes_;
    if (last_)
      last_->next_ = &one;
    else
      first_ = &one;
    last_ = &one;
  }

  /// The first of those that are wanted; or null.
  template <class Wanted>
  static entry* take(const Wanted& wanted) noexcept {
    entry* before = nullptr;
    for (entry* each = first_; each; before = each, each = each->next_) {
      if (!wanted(*each))
        continue;
      if (before)
        before->next_ = each->next_;
      else
        first_ = each->next_;
      if (last_ == each)
        last_ = before;
      return each;
    }
    return nullptr;
  }

  template <class Each, class Wanted>
  static bool any(const Each* each, const Wanted& wanted) noexcept {
    while (each && !wanted(*each))
      each = each->next_;
    return each;
  }

  /// Without the lock meanwhile. Whether there was memory.
  static bool retry(entry& one, std::unique_lock<std::mutex>& held) noexcept {
    call now{one.of_, calls_};
    calls_ = &now;
    held.unlock();
    bool done = true;
    try {
      one.try_again();
    } catch (const std::bad_alloc&) {
      done = false;
    }
    held.lock();
    auto** at = &calls_;
    while (*at != &now)
      at = &(*at)->next_;
    *at = now.next_;
    return done;
  }

  static inline constinit std::mutex access_; // never held while one is called
  static inline constinit std::atomic<entry*> first_ = nullptr;
  static inline constinit entry* last_ = nullptr;
  static inline constinit call* calls_ = nullptr;
  static inline constinit std::uint64_t passes_ = 0;      // that have begun
  static inline thread_local constinit int handling_ = 0; // messages, by this thread
  static inline thread_local constinit bool waking_ = false;
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
