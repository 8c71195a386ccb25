// Early termination of one request. Owned by the connection's session and used on its strand; the stop tokens may be
// used on any thread.
#pragma once

#include "runtime/support/error.hpp"

#include <cstddef>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

namespace troupe {

class request_scope {
public:
  /// `key` is the index of the request's API key, `client` who asks, for what is shared out among clients.
  explicit request_scope(std::size_t key = 0, std::string client = {}) : key_(key), client_(std::move(client)) {}
  std::size_t key() const { return key_; }
  const std::string& client() const { return client_; }

  /// Stop is requested when the answer is no longer wanted. Workers poll it.
  std::stop_token token() const { return stop_.get_token(); }

  /// Call when the client has left.
  void abandon() { stop_.request_stop(); }

  /// Ends the request from the server's side: the client gets `why` instead of an answer.
  void cut(error why) {
    cut_ = std::move(why);
    stop_.request_stop();
    if (wake_)
      wake_();
  }
  const std::optional<error>& why_cut() const { return cut_; }

  /// Has those who wait look again.
  void poke() const {
    if (wake_)
      wake_();
  }

  /// Sets the function that cut() and poke() call to wake a waiter.
  void on_cut(std::function<void()> wake) { wake_ = std::move(wake); }

private:
  std::size_t key_;
  std::string client_;
  std::stop_source stop_;
  std::optional<error> cut_;
  std::function<void()> wake_;
};

/// The error of requests that the server's stop cuts short.
inline error server_stops() { return {errc::unavailable, "the server is stopping", {}}; }

/// Throws failure(cancelled) if a stop was requested.
inline void check(const std::stop_token& stop) {
  if (stop.stop_requested())
    throw failure(errc::cancelled, "the request was given up");
}

} // namespace troupe
