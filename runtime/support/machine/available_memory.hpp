// How much memory this process can still allocate, as Linux tells. Any thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace troupe {

/// Bytes that this process can still allocate: the machine's available memory, or less where its control groups or its
/// limit on address space allow less.
std::size_t available_memory();

/// Bytes of memory that this process has taken and that no file holds.
std::size_t anonymous_memory();

/// Bytes that a process's control groups leave it, all levels considered: `groups` is the text of /proc/PID/cgroup,
/// `mount` is where their hierarchy is mounted (/sys/fs/cgroup). The largest number if there is no limit.
std::size_t memory_left_in_groups(std::string_view groups, const std::filesystem::path& mount);

} // namespace troupe
