#include "runtime/support/machine/machine_cores.hpp"

#include "runtime/support/machine/control_groups.hpp"
#include "runtime/support/text/number_text.hpp"

#include <algorithm>
#include <fstream>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#include <unistd.h>
#endif

namespace troupe {

namespace {

namespace fs = std::filesystem;

constexpr auto no_quota = std::numeric_limits<double>::infinity();

double quota_of(double time, double period) { return time > 0 && period > 0 ? time / period : no_quota; }

/// One group's own quota.
double quota_in(const fs::path& folder, bool unified) {
  double time = 0, period = 0;
  if (unified) { // "200000 100000", or "max 100000", which is no number
    classic<std::ifstream> in(folder / "cpu.max");
    return in >> time >> period ? quota_of(time, period) : no_quota;
  }
  classic<std::ifstream> quota(folder / "cpu.cfs_quota_us"), every(folder / "cpu.cfs_period_us"); // -1: no limit
  return quota >> time && every >> period ? quota_of(time, period) : no_quota;
}

} // namespace

int machine_cores::threads() const {
  const auto cores = static_cast<int>(numbers.size());
  return quota < cores ? std::max(1, static_cast<int>(quota)) : cores;
}

machine_cores usable_cores() {
  machine_cores result;
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(getpid(), sizeof set, &set) == 0)
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set))
        result.numbers.push_back(core);
#endif
  if (result.numbers.empty()) // more cores than the set has room for
    for (int core = 0; core < static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); ++core)
      result.numbers.push_back(core);
  result.quota = quota_in_groups(own_groups(), "/sys/fs/cgroup");
  return result;
}

double quota_in_groups(std::string_view groups, const fs::path& mount) {
  auto least = no_quota;
  for_each_group(groups, "cpu", mount,
                 [&](const fs::path& folder, bool unified) { least = std::min(least, quota_in(folder, unified)); });
  return least;
}

} // namespace troupe
