// Bounds the tokens that each owner uses in a minute. His balance grows evenly, up to what a minute gives, and what his
// requests use is taken off, also where it was not foreseen; while nothing is left, requests are refused. So a request
// of any length is possible, and on average nobody gets more. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace troupe {

class token_rate {
public:
  using time_point = std::chrono::steady_clock::time_point;

  /// Throws failure(overloaded) with the time until something is left, if nothing is. `per_minute` above 0.
  void check(const std::string& owner, std::uint64_t per_minute, time_point now);

  /// Takes tokens from an owner that was checked; does nothing for others.
  void spend(const std::string& owner, std::uint64_t tokens);

private:
  struct balance {
    double left = 0;
    std::uint64_t per_minute = 0;
    time_point at;
  };
  static void grow(balance& its, time_point now);

  std::mutex mutex_; // guards what follows
  std::map<std::string, balance> owners_;
};

} // namespace troupe
