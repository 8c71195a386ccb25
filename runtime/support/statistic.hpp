// Statistics are plain structs of counters, each with a table that names and describes its counters. Sums and
// `/metrics` follow the tables, so a new counter is a member, a row and the code that counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>

namespace troupe {

/// What may be known about a number without knowing what it counts.
struct statistic_info {
  enum class kind : std::uint8_t {
    counter, // only grows, also over restarts
    gauge,   // how it is now
  };
  kind what = kind::counter;
  const char* name = ""; // as Prometheus has it; of counters, and of no gauge, it ends in "_total"
  const char* help = "";
};

template <class Counters>
struct statistic {
  std::uint64_t Counters::*member;
  statistic_info about;
};

/// The table of a struct, a std::array of statistic<Counters>: specialised beside the struct.
template <class Counters>
inline constexpr std::nullptr_t statistics_of{};

template <class Counters>
constexpr statistic<Counters> counter_of(std::uint64_t Counters::*member, const char* name, const char* help) {
  return {member, {statistic_info::kind::counter, name, help}};
}

template <class Counters>
constexpr statistic<Counters> gauge_of(std::uint64_t Counters::*member, const char* name, const char* help) {
  return {member, {statistic_info::kind::gauge, name, help}};
}

constexpr bool well_named(const statistic_info& about) {
  return std::string_view(about.name).ends_with("_total") == (about.what == statistic_info::kind::counter);
}

/// Whether a table has as many rows as its struct has numbers, beside `other` bytes, and names them as it should.
template <class Counters>
constexpr bool well_described(std::size_t other = 0) {
  for (const auto& each : statistics_of<Counters>)
    if (!well_named(each.about))
      return false;
  return statistics_of<Counters>.size() * sizeof(std::uint64_t) + other == sizeof(Counters);
}

/// Adds what others count at the same time.
template <class Counters>
void add_beside(Counters& to, const Counters& more) {
  for (const auto& each : statistics_of<Counters>)
    to.*each.member += more.*each.member;
}

/// Adds what was counted before, which leaves gauges as they are.
template <class Counters>
void add_former(Counters& to, const Counters& former) {
  for (const auto& each : statistics_of<Counters>)
    if (each.about.what == statistic_info::kind::counter)
      to.*each.member += former.*each.member;
}

/// What was counted in lives that have ended: each adds its counters at its end, so that nothing is lost when an actor
/// starts again. Any thread.
template <class Counters>
class former_lives {
public:
  void end(const Counters& counted) {
    const std::lock_guard lock(mutex_);
    add_former(counted_, counted);
  }

  Counters counted() const {
    const std::lock_guard lock(mutex_);
    return counted_;
  }

private:
  mutable std::mutex mutex_;
  Counters counted_;
};

} // namespace troupe
