// How busy actors are, by kind: counted where they are spawned (spawn.hpp). CAF 0.17 has no profiler, and only the
// owner of a mailbox may ask for its length. Messages are counted while somebody watches; else this costs a look at a
// flag. Any thread.
#pragma once

#include "runtime/engine/engine_snapshot.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

namespace troupe {

class actor_counts {
public:
  using clock = std::chrono::steady_clock;

  /// `kind`: of static storage.
  explicit actor_counts(const char* kind);

  static bool watched() { return watchers_.load(std::memory_order_relaxed) > 0; }
  static void begin_watch() { ++watchers_; }
  static void end_watch() { --watchers_; }

  /// The load of all kinds of actors, by name.
  static std::vector<actor_load> all();

  void spawned() { spawned_.fetch_add(1, std::memory_order_relaxed); }
  void ended() { ended_.fetch_add(1, std::memory_order_relaxed); }
  void handled() { handled_.fetch_add(1, std::memory_order_relaxed); }
  void queued(std::int64_t more);

private:
  static std::atomic<int> watchers_;

  const char* kind_;
  std::atomic<std::uint64_t> spawned_ = 0, ended_ = 0, handled_ = 0;
  std::atomic<std::int64_t> queued_ = 0;
  std::atomic<clock::rep> since_ = 0; // when the queues of this kind became not empty; 0: they are
};

/// Counts one actor: keeps what its kind has in its queue true. Any thread may call `queued()`, the thread that runs
/// the actor the rest. An actor that was counted is taken off again, also if nobody watches anymore by then.
class mailbox_count {
public:
  explicit mailbox_count(actor_counts& kind) : kind_(kind) { kind_.spawned(); }
  ~mailbox_count() {
    kind_.ended();
    clear();
  }
  mailbox_count(const mailbox_count&) = delete;
  mailbox_count& operator=(const mailbox_count&) = delete;

  void queued() {
    if (ended_)
      return;
    change(1);
    if (ended_) // since then
      clear();
  }
  /// The next message is taken. Whether there was a counted one: what came while nobody watched was not.
  bool take() {
    auto length = length_.load(std::memory_order_relaxed);
    while (length > 0)
      if (length_.compare_exchange_weak(length, length - 1)) {
        kind_.queued(-1);
        return true;
      }
    return false;
  }
  void handled() { kind_.handled(); }

  /// Nothing that waits, or comes from now on, is handled.
  void end() {
    ended_ = true;
    clear();
  }

private:
  void change(std::int64_t by) {
    length_ += by;
    kind_.queued(by);
  }
  void clear() {
    if (const auto length = length_.exchange(0); length != 0)
      kind_.queued(-length);
  }

  actor_counts& kind_;
  std::atomic<std::int64_t> length_ = 0;
  std::atomic<bool> ended_ = false;
};

} // namespace troupe
