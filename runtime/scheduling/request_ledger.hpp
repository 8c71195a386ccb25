// Where the time of one request went. At any instant the request is in one state, so the parts sum to the whole. Its
// request actor owns the account; the scheduler that runs it tells what it does there, and servers look at it while it
// runs, so a mutex guards it. Nothing here allocates.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>

namespace troupe {

/// What a request, or one sequence of it, does, or what it waits for.
enum class wait_cause : std::uint8_t {
  decode,         // its newest tokens, and guesses of the next ones
  prefill,        // a part of its prompt, or of what it lost
  blocks,         // asked for KV blocks and got none
  mask,           // its constraint is compiled, or a mask is late
  judge,          // its search goes on once a judge has valued its answers
  turn,           // it runs, but steps are of others
  queue,          // it has not begun
  preempted,      // it lost its place, and waits for another
  paused,         // its client reads too slowly
  others_prefill, // what its steps, or those it waits for, take longer because of others' prompts
  restart,        // its replica ended: until it runs again
  transfer,       // its blocks come from a disk, or it moves to another replica
  load,           // its model is being loaded
  parse,          // a server reads it, and makes tokens of it
  write           // all is generated, and the server writes the end
};
inline constexpr std::size_t wait_causes = 15;

/// In answers, log lines and metrics: "others_prefill".
std::string_view name_of(wait_cause what);

/// Milliseconds by cause.
struct wait_parts {
  std::array<double, wait_causes> ms{};

  double& operator[](wait_cause what) { return ms[static_cast<std::size_t>(what)]; }
  double operator[](wait_cause what) const { return ms[static_cast<std::size_t>(what)]; }
  double total() const;
};

/// A state, and the share of its time that others' prompts take.
struct wait_state {
  wait_cause what = wait_cause::queue;
  double others = 0; // from 0 to 1

  bool operator==(const wait_state&) const = default;
};

class request_ledger {
public:
  using time_point = std::chrono::steady_clock::time_point;

  explicit request_ledger(time_point begun) : since_(begun), begun_(begun) {}

  time_point begun() const { return begun_; }

  /// From now on it is in this state. Threads may read the clock in another order than they come here: no part is
  /// negative.
  void enter(wait_state now_in, time_point now);
  /// Like the above, from a scheduler that runs it under this number; ignored if it runs elsewhere by now.
  void enter(std::uint64_t number, wait_state now_in, time_point now);
  /// It has this number from now on; 0: it runs nowhere.
  void admit(std::uint64_t number, wait_state now_in, time_point now);
  /// It has ended: nothing is added any more.
  void close(time_point now);

  struct look {
    wait_state state;
    wait_parts parts;
    bool ended = false;
    std::uint64_t tokens = 0; // generated, over all sequences
  };
  /// What is known at `now`. Any thread.
  look seen(time_point now) const;
  /// The parts of a request that has ended.
  wait_parts parts() const { return seen(begun_).parts; }

  /// Counts what it has generated. Its request actor alone.
  void generated(std::uint64_t tokens) { tokens_.fetch_add(tokens, std::memory_order_relaxed); }

private:
  static void add(wait_parts& to, wait_state of, time_point from, time_point until);
  void pass(time_point now);

  mutable std::mutex mutex_; // guards what follows
  wait_state state_;
  wait_parts parts_;
  time_point since_; // of state_
  std::uint64_t number_ = 0;
  bool ended_ = false;

  std::atomic<std::uint64_t> tokens_ = 0;
  const time_point begun_;
};

} // namespace troupe
