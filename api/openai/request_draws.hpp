// What one request has drawn by chance (its ids, its seed) and the time that it tells: from these, another process makes
// the same answer of the same tokens. Used by the parser or the writer of the request, never by both at once.
#pragma once

#include <cstddef>
#include <ctime>
#include <string>
#include <utility>

namespace troupe {

struct request_draws {
  std::string bytes;       // in the order in which they were drawn
  std::size_t next = 0;    // that are told again first
  std::time_t created = 0; // 0: not told yet
};

/// What is drawn on this thread meanwhile is the request's.
class drawing_for {
public:
  explicit drawing_for(request_draws& whose) : before_(std::exchange(current(), &whose)) {}
  ~drawing_for() { current() = before_; }
  drawing_for(const drawing_for&) = delete;
  drawing_for& operator=(const drawing_for&) = delete;

  /// Null: nobody's.
  static request_draws*& current() {
    thread_local request_draws* mine = nullptr;
    return mine;
  }

private:
  request_draws* const before_;
};

/// When the request began.
inline std::time_t request_time() {
  auto* its = drawing_for::current();
  const auto now = std::time(nullptr);
  if (!its)
    return now;
  if (its->created == 0)
    its->created = now;
  return its->created;
}

} // namespace troupe
