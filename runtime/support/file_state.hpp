// What tells one state of a file from another without reading it. For caches of what is made of files.
#pragma once

#include <cstdint>
#include <filesystem>

namespace troupe {

/// Writing to a file changes its times; `changed_ns` also where somebody sets `modified_ns` back, as archives do.
struct file_state {
  std::filesystem::path path; // canonical
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0, changed_ns = 0; // mtime and ctime, since 1970
};

/// Throws failure(not_found | bad_file) naming the file.
file_state state_of(const std::filesystem::path& file);

/// The same of a file that is open.
file_state state_of(const std::filesystem::path& file, int descriptor);

/// Whether there is something of that name. Where that cannot be told there is: who opens it will hear why not.
bool is_there(const std::filesystem::path& file);

} // namespace troupe
