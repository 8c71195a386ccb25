// Which cores this process may use, as Linux tells. Any thread.
#pragma once

#include <filesystem>
#include <limits>
#include <string_view>
#include <vector>

namespace troupe {

struct machine_cores {
  std::vector<int> numbers;                               // ascending, never empty
  double quota = std::numeric_limits<double>::infinity(); // cores' worth of time, by control groups

  /// Threads that can compute at once. A part of a core is not counted: all would wait for the thread that has it.
  int threads() const;
};

/// The cores of the process's first thread: others may stay on fewer.
machine_cores usable_cores();

/// The cores' worth of time that a process's control groups leave it, all levels considered; infinity: no limit. The
/// arguments are those of for_each_group.
double quota_in_groups(std::string_view groups, const std::filesystem::path& mount);

} // namespace troupe
