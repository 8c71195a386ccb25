#include "api/http/token_rate.hpp"

#include "runtime/support/error.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>

namespace troupe {

namespace {

constexpr std::size_t most_owners = 4096; // beside whom those are forgotten who have all of theirs

} // namespace

void token_rate::grow(balance& its, time_point now) {
  const auto each = static_cast<double>(its.per_minute);
  const std::chrono::duration<double, std::ratio<60>> since = now - its.at;
  its.left = std::min(each, its.left + std::max(0.0, since.count()) * each);
  its.at = std::max(its.at, now);
}

void token_rate::check(const std::string& owner, std::uint64_t per_minute, time_point now) {
  const std::lock_guard lock(mutex_);
  auto known = owners_.find(owner);
  if (known == owners_.end()) {
    if (owners_.size() >= most_owners)
      for (auto each = owners_.begin(); each != owners_.end();) {
        grow(each->second, now);
        const bool whole = each->second.left >= static_cast<double>(each->second.per_minute);
        each = whole ? owners_.erase(each) : std::next(each);
      }
    known = owners_.emplace(owner, balance{static_cast<double>(per_minute), per_minute, now}).first;
  }
  auto& its = known->second;
  grow(its, now);
  its.per_minute = per_minute; // a policy may have been read again
  if (its.left > 0)
    return;
  error why{errc::overloaded,
            "this client may use " + std::to_string(per_minute) + " tokens a minute, and has used those of now",
            {}};
  why.retry_ms = std::ceil((1 - its.left) / static_cast<double>(per_minute) * 60'000);
  throw failure(std::move(why));
}

void token_rate::spend(const std::string& owner, std::uint64_t tokens) {
  const std::lock_guard lock(mutex_);
  if (const auto known = owners_.find(owner); known != owners_.end())
    known->second.left -= static_cast<double>(tokens);
}

} // namespace troupe
