// Faults on purpose, for tests of what a running server survives. Whoever asks for them (`troupe serve --fault-injection`)
// sets a plan; doors in the program (actors/spawn.hpp, the files of kept blocks, connections) ask whether it strikes
// there now. Without a plan a door costs a look at a flag. Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// A fault that comes again and again. Its passages are messages of an actor, blocks of a disk, writes of a connection.
struct fault_rule {
  enum class effect : std::uint8_t {
    exception,     // the handler of the message throws
    kill,          // the actor is ended, as if from outside
    out_of_memory, // the handler gets a few KiB of memory, then none
    delay,         // the message is handled later; its thread waits
    refusal,       // the disk refuses, the connection breaks
  };

  std::string kind; // of actor, or `disk` or `socket`
  effect what = effect::exception;
  int replica = -1, stage = -1;      // -1: any
  std::chrono::milliseconds every{}; // between two strikes, or
  std::uint64_t every_passages = 0;  // that many passages
  std::uint64_t count = 1;           // of strikes
  std::uint64_t seed = 0;            // draws the distance of strikes, half of it to one and a half; 0: it is even
  std::chrono::milliseconds pause{}; // of a delay
  std::uint64_t struck = 0;          // so far
};

/// What a strike does.
struct struck_fault {
  fault_rule::effect what{};
  std::chrono::milliseconds pause{};
  std::size_t bytes = 0; // that the handler gets
};

/// Decides when rules strike. Not safe for threads.
class fault_plan {
public:
  using clock = std::chrono::steady_clock;

  fault_plan() = default;
  fault_plan(const std::vector<fault_rule>& rules, clock::time_point now);

  /// The first rule that strikes at a passage through a door.
  std::optional<struck_fault> pass(std::string_view kind, int replica, int stage, clock::time_point now);

  std::vector<fault_rule> rules() const;

private:
  struct armed_rule {
    fault_rule rule;
    std::uint64_t drawn = 0; // random numbers
    clock::time_point due{}; // if it goes by time
    std::uint64_t left = 0;  // passages until it strikes, else
  };

  static std::uint64_t draw(armed_rule& of);
  static void wait_again(armed_rule& one, clock::time_point now);

  std::vector<armed_rule> armed_;
};

/// The plan of the process.
class fault_injection {
public:
  static bool armed() { return armed_.load(std::memory_order_relaxed); }

  /// From now on. Returns the rules that it replaces, with how often each has struck; no rules: nothing strikes.
  static std::vector<fault_rule> set(const std::vector<fault_rule>& rules);
  static std::vector<fault_rule> rules();

  static std::optional<struck_fault> pass(std::string_view kind, int replica = -1, int stage = -1);

  /// Whether a disk refuses, or a connection breaks, now.
  static bool refuses(std::string_view kind) { return armed() && pass(kind).has_value(); }

private:
  static std::atomic<bool> armed_;
};

} // namespace troupe
