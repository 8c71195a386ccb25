#include "runtime/checkpoint/cache_folder.hpp"

#include "runtime/support/byte_size.hpp"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace troupe {

namespace {

namespace fs = std::filesystem;

struct cached_file {
  fs::path path;
  std::size_t bytes = 0;
  fs::file_time_type used;
};

std::vector<cached_file> cached_files(const fs::path& folder, std::string_view ending) {
  std::vector<cached_file> files;
  std::error_code error;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
    std::error_code ignored;
    if (!i->path().filename().string().ends_with(ending) || !fs::is_regular_file(i->symlink_status(ignored)))
      continue;
    const cached_file file{i->path(), i->file_size(ignored), i->last_write_time(ignored)};
    if (!ignored) // else another process has removed it
      files.push_back(file);
  }
  return files;
}

/// Removes what a process that died while writing has left. Living writers hold a lock.
void remove_partial(const fs::path& file) {
  const int opened = open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (opened < 0)
    return;
  if (flock(opened, LOCK_EX | LOCK_NB) == 0)
    unlink(file.c_str());
  close(opened);
}

} // namespace

std::string make_room(const fs::path& folder, const std::string& name, std::string_view ending, std::size_t bytes,
                      const cache_limits& limits) {
  const auto partial = std::string(ending) + ".troupe-partial";
  for (const auto& left : cached_files(folder, partial))
    if (left.path.filename() != "." + name + ".troupe-partial")
      remove_partial(left.path);
  std::error_code error;
  const auto space = fs::space(folder, error);
  if (error)
    return {}; // writing will tell
  const auto tenth = static_cast<std::size_t>(space.capacity / 10);
  auto most = limits.most_bytes > 0 ? limits.most_bytes : tenth;
  if (bytes > most) {
    if (limits.most_bytes > 0 || limits.leaves_a_tenth)
      return "a file of " + to_size(bytes) + " is more than the " + to_size(most) + " that all may take";
    most = bytes;
  }
  auto files = cached_files(folder, ending);
  std::ranges::sort(files, {}, &cached_file::used);
  std::size_t there = 0, own = 0;
  for (const auto& file : files)
    (file.path.filename() == name ? own : there) += file.bytes;
  auto free = static_cast<std::size_t>(space.available);
  // The file that is replaced is there until the new one is complete.
  const auto needed = bytes + (limits.leaves_a_tenth ? tenth : 0);
  for (const auto& file : files) {
    if (there + bytes <= most && free >= needed)
      break;
    if (file.path.filename() == name || !fs::remove(file.path, error))
      continue;
    there -= file.bytes;
    free += file.bytes;
  }
  if (limits.leaves_a_tenth && free < needed)
    return "a file of " + to_size(bytes) + " would leave less than a tenth of the disk free, which has " +
      to_size(free) + " left";
  return {};
}

void mark_used(const fs::path& file) noexcept { utimensat(AT_FDCWD, file.c_str(), nullptr, 0); }

fs::path user_cache_folder() {
  if (const char* caches = std::getenv("XDG_CACHE_HOME"); caches != nullptr && *caches == '/')
    return fs::path(caches) / "troupe";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return fs::path(home) / ".cache" / "troupe";
  return {};
}

} // namespace troupe
