// Identifies the state of a file without reading it, for caches of derived data.
#pragma once

#include <cstdint>
#include <filesystem>

namespace troupe {

/// Every write changes the times. `changed_ns` also catches tools that reset `modified_ns`, as archivers do.
struct file_state {
  std::filesystem::path path; // canonical
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0, changed_ns = 0; // mtime and ctime, since 1970
};

/// Throws failure(not_found | bad_file) naming the file.
file_state state_of(const std::filesystem::path& file);

/// The state of an open file.
file_state state_of(const std::filesystem::path& file, int descriptor);

/// Throws failure(not_found | bad_file), with a sentence, if the file has vanished or was written since.
void require_unchanged(const file_state& before);

/// Whether the path exists. True if that cannot be determined: opening it then reports why.
bool is_there(const std::filesystem::path& file);

} // namespace troupe
