// Room in a folder of files that can be made again: those that were used longest ago make way. Several processes may
// share the folder; a file that one of them has mapped stays readable for it when it is removed. Any thread.
#pragma once

#include "runtime/support/files/own_folder.hpp"

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace troupe {

struct cache_limits {
  std::size_t most_bytes = 0; // of all files together; 0: a tenth of the file system, or as much as the new one takes
  bool leaves_a_tenth = true; // of the file system free, and takes no file whose size exceeds most_bytes
};

/// Files that a cache may remove: ours (own_folder.hpp), whose names end so and that begin so.
struct cached_kind {
  std::string_view ending, mark;
};

/// Makes room in `folder` for a file called `name` of `bytes` bytes. Removes files of `kind`, and what dead writers of
/// such files have left, but not `name`. Returns why there is no room; empty if there is.
std::string make_room(const own_folder& folder, const std::string& name, const cached_kind& kind, std::size_t bytes,
                      const cache_limits& limits);

/// Marks a file as used now. A refusal has no effect but an earlier removal.
void mark_used(const std::filesystem::path& file) noexcept;

/// $XDG_CACHE_HOME/troupe or ~/.cache/troupe; empty if neither variable is set.
std::filesystem::path user_cache_folder();

} // namespace troupe
