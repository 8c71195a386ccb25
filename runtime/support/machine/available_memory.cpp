#include "runtime/support/machine/available_memory.hpp"

#include "runtime/support/machine/control_groups.hpp"
#include "runtime/support/text/number_text.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include <sys/resource.h>
#include <unistd.h>

namespace troupe {

namespace {

namespace fs = std::filesystem;

constexpr auto unknown = std::numeric_limits<std::size_t>::max();

std::size_t number_in(const fs::path& file) {
  std::size_t n = 0;
  classic<std::ifstream> in(file);
  return in >> n ? n : unknown;
}

/// The number after `key` in a file of lines "key number [unit]".
std::size_t number_in(const fs::path& file, const std::string& key) {
  classic<std::ifstream> in(file);
  std::string name, rest;
  for (std::size_t n = 0; in >> name >> n; std::getline(in, rest))
    if (name == key)
      return n;
  return unknown;
}

/// Files of a control group's limit and use. `cache` are the keys of reclaimable memory: the page cache, which holds
/// the checkpoint that was just read, and packed weights that an earlier process had mapped.
struct group_files {
  const char* limit;
  const char* used;
  const char* cache[2];
};
constexpr group_files version_1{
  "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};
constexpr group_files version_2{"memory.max", "memory.current", {"inactive_file", "active_file"}};

/// Bytes that one control group leaves, its parents apart.
std::size_t left_in(const fs::path& group, const group_files& names) {
  const auto limit = number_in(group / names.limit), used = number_in(group / names.used);
  if (limit == unknown || used == unknown)
    return unknown;
  auto in_use = used;
  for (const auto* key : names.cache)
    if (const auto cache = number_in(group / "memory.stat", key); cache != unknown)
      in_use -= std::min(in_use, cache);
  return limit > in_use ? limit - in_use : 0;
}

/// Bytes of address space below the process's limit.
std::size_t left_of_address_space() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return unknown;
  const auto pages = number_in("/proc/self/statm");
  const auto in_use = pages == unknown ? 0 : pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return limit.rlim_cur > in_use ? limit.rlim_cur - in_use : 0;
}

} // namespace

std::size_t memory_left_in_groups(std::string_view groups, const fs::path& mount) {
  auto left = unknown;
  for_each_group(groups, "memory", mount, [&](const fs::path& folder, bool unified) {
    left = std::min(left, left_in(folder, unified ? version_2 : version_1));
  });
  return left;
}

std::size_t available_memory() {
  const auto kib = number_in("/proc/meminfo", "MemAvailable:");
  const auto machine = kib == unknown ? unknown : kib * 1024;
  return std::min({machine, memory_left_in_groups(own_groups(), "/sys/fs/cgroup"), left_of_address_space()});
}

std::size_t anonymous_memory() {
  classic<std::ifstream> in("/proc/self/statm"); // in pages
  std::size_t size = 0, resident = 0, of_files = 0;
  in >> size >> resident >> of_files;
  return (resident - std::min(resident, of_files)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

} // namespace troupe
