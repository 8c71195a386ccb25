// Finds the files of the Linux control groups that a process is in.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace troupe {

/// Calls found(folder, unified) for the groups of one `controller` ("memory", "cpu") that a process is in, and for all
/// groups above them. `groups` is the text of /proc/PID/cgroup, `mount` is where the hierarchy is mounted. `unified`:
/// the folder is of version 2. Folders may not exist: in a container the path may name a group of the host that is not
/// mounted here; the root then is our group.
void for_each_group(std::string_view groups, std::string_view controller, const std::filesystem::path& mount,
                    const std::function<void(const std::filesystem::path& folder, bool unified)>& found);

/// The text of this process's /proc/self/cgroup.
std::string own_groups();

} // namespace troupe
