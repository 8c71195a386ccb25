#include "api/server/figures/process_metrics.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/files/file_reading.hpp"

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include <sys/resource.h>
#include <unistd.h>

namespace troupe {

namespace {

constexpr file_kind of_system{"a file of the system", std::size_t(4) << 20};

std::optional<std::uint64_t> number_at(std::string_view text) {
  std::uint64_t number = 0;
  const auto end = text.data() + text.size();
  return std::from_chars(text.data(), end, number).ec == std::errc() ? std::optional(number) : std::nullopt;
}

/// /proc/self/stat behind the program's name, which may contain anything: proc(5) counts that as the second field.
class stat_fields {
public:
  explicit stat_fields(std::string_view stat) : rest_(stat.substr(std::min(stat.rfind(')'), stat.size()))) {}

  std::optional<std::uint64_t> number(int field) const {
    auto rest = rest_;
    for (int at = 2; at < field; ++at) {
      const auto space = rest.find(' ');
      if (space == rest.npos)
        return std::nullopt;
      rest.remove_prefix(space + 1);
    }
    return number_at(rest);
  }

private:
  std::string_view rest_;
};

/// When the system started, in seconds since 1970.
std::optional<std::uint64_t> boot_time() {
  static const auto seconds = [] {
    const auto stat = read_file("/proc/stat", of_system);
    constexpr std::string_view key = "\nbtime ";
    const auto at = stat.find(key);
    return at == stat.npos ? std::nullopt : number_at(std::string_view(stat).substr(at + key.size()));
  }();
  return seconds;
}

class families {
public:
  void add(const char* name, const char* help, std::optional<double> value, bool counts = false) {
    if (!value)
      return;
    prometheus::ClientMetric metric;
    (counts ? metric.counter.value : metric.gauge.value) = *value;
    all_.push_back(
      {name, help, counts ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge, {std::move(metric)}});
  }

  std::vector<prometheus::MetricFamily> collect() { return std::move(all_); }

private:
  std::vector<prometheus::MetricFamily> all_;
};

/// A limit of -1 is none, as other clients say.
std::optional<double> soft_limit(int of) {
  rlimit limit{};
  if (getrlimit(of, &limit) != 0)
    return std::nullopt;
  return limit.rlim_cur == RLIM_INFINITY ? -1 : static_cast<double>(limit.rlim_cur);
}

std::optional<double> times(std::optional<std::uint64_t> count, double unit) {
  return count ? std::optional(static_cast<double>(*count) * unit) : std::nullopt;
}

} // namespace

std::vector<prometheus::MetricFamily> process_families() {
  families all;
  try {
    const auto text = read_file("/proc/self/stat", of_system);
    const stat_fields stat(text);
    const auto tick = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
    const auto user = times(stat.number(14), tick), system = times(stat.number(15), tick);
    if (user && system)
      all.add("process_cpu_seconds_total", "User and system CPU time.", *user + *system, true);
    const auto started = times(stat.number(22), tick);
    if (const auto boot = boot_time(); boot && started)
      all.add("process_start_time_seconds", "When the process started, since 1970.",
              static_cast<double>(*boot) + *started);
    all.add("process_threads", "Threads.", times(stat.number(20), 1));
    all.add("process_virtual_memory_bytes", "Address space.", times(stat.number(23), 1));
    all.add("process_resident_memory_bytes", "Memory that is present, mapped files included.",
            times(stat.number(24), static_cast<double>(sysconf(_SC_PAGESIZE))));
  } catch (const failure&) { // there is no /proc
  }
  all.add("process_virtual_memory_max_bytes", "Most address space; -1: no limit.", soft_limit(RLIMIT_AS));
  all.add("process_max_fds", "Most open file descriptors.", soft_limit(RLIMIT_NOFILE));
  std::error_code failed;
  const std::filesystem::directory_iterator open("/proc/self/fd", failed);
  if (!failed) // the last one is this iterator's
    all.add("process_open_fds", "Open file descriptors.",
            static_cast<double>(std::distance(open, std::filesystem::directory_iterator()) - 1));
  return all.collect();
}

} // namespace troupe
