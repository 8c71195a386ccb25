// Where the time of one request went in the server and in the engine, from its first byte to the last of its answer. At
// any instant it is in one state, so the parts sum to the whole. Written on its connection's strand; any thread may look.
#pragma once

#include "runtime/scheduling/request_ledger.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

namespace troupe {

inline double milliseconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

class request_times {
public:
  using clock = std::chrono::steady_clock;

  /// It waits for its model to be loaded from now on, or does no more.
  void loads(bool now);
  /// One of its generations runs, with this account; null: it has none.
  void submitted(std::shared_ptr<const request_ledger> its);
  /// It has its answer.
  void end();

  struct look {
    std::string_view state; // name_of a wait_cause, or "ended"
    wait_parts spent;       // of several generations, in the engine: as the one that ended last, or runs
    double total_ms = 0;
    std::uint64_t tokens = 0; // generated
    bool submitted = false;   // to an engine that keeps an account
  };
  look seen() const;

private:
  look seen_at(clock::time_point now) const;

  const clock::time_point begun_ = clock::now();
  mutable std::mutex mutex_; // guards what follows
  clock::duration loaded_{};
  std::optional<clock::time_point> loads_since_;
  std::vector<std::shared_ptr<const request_ledger>> running_;
  std::optional<look> ended_;
};

} // namespace troupe
