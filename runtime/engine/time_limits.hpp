// When a request's first token and its last one are due. Plain values.
#pragma once

#include "runtime/scheduling/request.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

namespace troupe {

struct time_limits {
  using time_point = request_ledger::time_point;
  static constexpr auto never = time_point::max();

  time_point first_by = never;
  time_point all_by = never;

  time_limits() = default;
  time_limits(const request& of, time_point submitted)
    : first_by(after(submitted, of.ttft_timeout)), all_by(after(submitted, of.timeout)) {}

  /// When to look next, of a request that has its first token or waits for it.
  time_point next(bool has_first) const { return has_first ? all_by : std::min(first_by, all_by); }

private:
  static time_point after(time_point begin, std::chrono::milliseconds limit) {
    return limit.count() > 0 ? begin + limit : never;
  }
};

/// What is said of a request that had no whole answer by then, or no token.
inline error out_of_time(const request& of, bool whole) {
  return {errc::timeout,
          std::string("the request ") + (whole ? "was not finished" : "had no token") + " within " +
            std::to_string((whole ? of.timeout : of.ttft_timeout).count()) + " ms",
          whole ? "timeout" : "ttft_timeout"};
}

} // namespace troupe
