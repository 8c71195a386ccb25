#include "runtime/checkpoint/packed/cache_folder.hpp"

#include "runtime/support/text/byte_size.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>

namespace troupe {

namespace {

namespace fs = std::filesystem;

struct cached_file {
  std::string name;
  std::size_t bytes = 0;
  std::int64_t used = 0;
};

std::vector<cached_file> cached_files(const own_folder& folder, const cached_kind& kind) {
  std::vector<cached_file> files;
  for (auto& name : folder.names()) {
    if (!name.ends_with(kind.ending))
      continue;
    const auto opened = folder.open(name);
    std::string start(kind.mark.size(), '\0');
    struct stat s {};
    if (opened && read_whole(opened, start.data(), start.size()) && start == kind.mark && fstat(opened.get(), &s) == 0)
      files.push_back({std::move(name), static_cast<std::size_t>(s.st_size),
                       std::int64_t{s.st_mtim.tv_sec} * 1'000'000'000 + s.st_mtim.tv_nsec});
  }
  return files;
}

/// Removes what processes that died while writing have left, except `own`. Living writers hold a lock. How such a file
/// begins is written last.
void remove_partial(const own_folder& folder, std::string_view ending, const std::string& own) {
  for (const auto& name : folder.names())
    if (name.starts_with('.') && name.ends_with(ending) && name != own)
      if (const auto opened = folder.open(name); opened && try_lock(opened))
        folder.remove(name);
}

} // namespace

std::string make_room(const own_folder& folder, const std::string& name, const cached_kind& kind, std::size_t bytes,
                      const cache_limits& limits) {
  constexpr std::string_view partial = ".troupe-partial";
  remove_partial(folder, std::string(kind.ending) + std::string(partial), "." + name + std::string(partial));
  std::error_code error;
  const auto space = fs::space(folder.path(), error);
  if (error)
    return {}; // writing will tell
  const auto tenth = static_cast<std::size_t>(space.capacity / 10);
  auto most = limits.most_bytes > 0 ? limits.most_bytes : tenth;
  if (bytes > most) {
    if (limits.most_bytes > 0 || limits.leaves_a_tenth)
      return "a file of " + to_size(bytes) + " is more than the " + to_size(most) + " that all may take";
    most = bytes;
  }
  auto files = cached_files(folder, kind);
  std::ranges::sort(files, {}, &cached_file::used);
  std::size_t there = 0;
  for (const auto& file : files)
    there += file.name == name ? 0 : file.bytes;
  auto free = static_cast<std::size_t>(space.available);
  // The file that is replaced is there until the new one is complete.
  const auto needed = bytes + (limits.leaves_a_tenth ? tenth : 0);
  for (const auto& file : files) {
    if (there + bytes <= most && free >= needed)
      break;
    if (file.name == name || !folder.remove(file.name))
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
