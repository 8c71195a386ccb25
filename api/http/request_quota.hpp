// Limits the concurrent sequences of one owner (an API key, a connection), so that no owner fills the engine. Any
// thread.
#pragma once

#include "runtime/support/error.hpp"

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace troupe {

class request_quota {
public:
  /// `owner_kind` and `what` are for messages: "one API key". `most` of 0 means unlimited. `room`: what the engine can
  /// hold of everybody, running and waiting; 0: it is not known.
  request_quota(std::string owner_kind, std::size_t most, std::size_t room = 0, std::string what = "sequences")
    : owner_kind_(std::move(owner_kind)),
      what_(std::move(what)),
      most_(most),
      room_(room),
      counts_(std::make_shared<counts>()) {}

  /// Another bound, for what is reserved from now on. Where there was none before, what runs does not count.
  void limit(std::size_t most) { most_ = most; }

  /// Reserves `sequences` for `owner` until the last copy of the result is gone. Throws failure(overloaded) if they
  /// exceed the limit together with those that run, failure(bad_request) on `n` if they exceed it alone,
  /// or could never be admitted together.
  /// `own`: the limit of this owner, instead of everybody's.
  std::shared_ptr<const void> acquire(const std::string& owner, std::size_t sequences,
                                      std::optional<std::size_t> own = {});

private:
  struct counts {
    std::mutex mutex;
    std::map<std::string, std::size_t> by_owner; // who have any
  };

  const std::string owner_kind_, what_;
  std::atomic<std::size_t> most_;
  const std::size_t room_;
  std::shared_ptr<counts> counts_; // shared with the reservations
};

} // namespace troupe
