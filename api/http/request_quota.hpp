// How many sequences somebody has in the engine, and how many that may be, so that nobody fills it alone. Any thread.
#pragma once

#include "runtime/support/error.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace troupe {

class request_quota {
public:
  /// `whose`: "one API key". `most` of 0 is no bound.
  request_quota(std::string whose, std::size_t most)
    : whose_(std::move(whose)), most_(most), counts_(std::make_shared<counts>()) {}

  /// Room for that many sequences of `who`, taken until the last copy of the result is gone. Throws failure(overloaded)
  /// where they are too many beside those that run, failure(bad_request) on `n` where they are too many alone.
  std::shared_ptr<const void> take(std::size_t who, std::size_t sequences);

private:
  struct counts {
    std::mutex mutex;
    std::map<std::size_t, std::size_t> of;
  };

  const std::string whose_;
  const std::size_t most_;
  std::shared_ptr<counts> counts_; // shared with what was taken
};

} // namespace troupe
