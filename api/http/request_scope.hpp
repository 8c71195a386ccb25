// One request on its way through the server, as far as ending it early goes. Owned by its connection's session and used
// on the connection's strand; the tokens of `stop` go anywhere.
#pragma once

#include "runtime/support/error.hpp"

#include <cstddef>
#include <functional>
#include <optional>
#include <stop_token>

namespace troupe {

class request_scope {
public:
  /// `key`: which of the server's API keys asks.
  explicit request_scope(std::size_t key = 0) : key_(key) {}
  std::size_t key() const { return key_; }

  /// Asked to stop where nobody waits for the answer any longer: workers look at it.
  std::stop_token token() const { return stop_.get_token(); }

  /// The client has left.
  void abandon() { stop_.request_stop(); }

  /// The server waits no longer: the client is told `why` and nothing else.
  void cut(error why) {
    cut_ = std::move(why);
    stop_.request_stop();
    if (wake_)
      wake_();
  }
  const std::optional<error>& why_cut() const { return cut_; }

  /// What cut() calls, for who waits for events meanwhile.
  void on_cut(std::function<void()> wake) { wake_ = std::move(wake); }

private:
  std::size_t key_;
  std::stop_source stop_;
  std::optional<error> cut_;
  std::function<void()> wake_;
};

/// What requests are told that are cut short by the end of the server.
inline error server_stops() { return {errc::unavailable, "the server is stopping", {}}; }

/// Throws failure(cancelled) where stopping was asked for.
inline void check(const std::stop_token& stop) {
  if (stop.stop_requested())
    throw failure(errc::cancelled, "the request was given up");
}

} // namespace troupe
