// The queues in which sequences stand: those that run, those that wait for slots, and those that are paused. A sequence
// itself says in which it belongs, so it leaves its queue before that changes, and enters behind it. Owned by
// sequence_table; single-threaded.
#pragma once

#include "runtime/scheduling/planning/fair_queue.hpp"
#include "runtime/scheduling/planning/scheduled_sequence.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <ranges>
#include <tuple>

namespace troupe {

class sequence_queues {
public:
  void enter(scheduled_sequence& s) {
    if (s.running() || s.paused())
      s.waits_since = 0;
    if (s.running())
      running_.emplace(order(s), &s);
    else if (s.paused())
      paused_.emplace(order(s), &s);
    else
      waiting_.add(s.asked->client, place_of(s));
    paused_count_ += s.paused();
  }
  void leave(const scheduled_sequence& s) {
    if (s.running())
      running_.erase(order(s));
    else if (s.paused())
      paused_.erase(order(s));
    else
      waiting_.remove(s.asked->client, place_of(s));
    paused_count_ -= s.paused();
  }
  /// A sequence that waits will run.
  void serve(const scheduled_sequence& s) {
    leave(s);
    waiting_.served(s.asked->client);
  }

  /// In scheduling order.
  auto running() {
    return running_ | std::views::values |
      std::views::transform([](scheduled_sequence* s) -> scheduled_sequence& { return *s; });
  }
  auto running() const {
    return running_ | std::views::values |
      std::views::transform([](const scheduled_sequence* s) -> const scheduled_sequence& { return *s; });
  }
  std::int32_t running_count() const { return static_cast<std::int32_t>(running_.size()); }
  const fair_queue& waiting() const { return waiting_; }
  /// Those that run included.
  std::size_t paused_count() const { return paused_count_; }

private:
  using key = std::tuple<int, std::uint64_t, sequence_id>; // -priority, arrival, id: scheduling order
  using queue = std::map<key, scheduled_sequence*>;

  static key order(const scheduled_sequence& s) { return {-s.priority, s.asked->arrival, s.id}; }
  static fair_queue::place place_of(const scheduled_sequence& s) {
    return {s.priority, s.asked->arrival, s.id, s.asked->preference};
  }

  queue running_, paused_; // paused_: those that do not run
  fair_queue waiting_;
  std::size_t paused_count_ = 0;
};

} // namespace troupe
