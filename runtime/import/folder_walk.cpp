#include "runtime/import/folder_walk.hpp"

#include <algorithm>
#include <system_error>

#include <sys/stat.h>

namespace troupe {

namespace fs = std::filesystem;

std::vector<folder_entry> folder_walk::entries(const fs::path& folder) {
  std::vector<folder_entry> found;
  struct stat state = {};
  if (::stat(folder.c_str(), &state) != 0 || !S_ISDIR(state.st_mode) ||
      !seen_.emplace(state.st_dev, state.st_ino).second || left_ == 0)
    return found;
  std::error_code error;
  auto entry = fs::directory_iterator(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (--left_ == 0) {
      remarks_.push_back(folder.string() +
                         ": there are too many files; models here and in what follows may be missing");
      break;
    }
    std::error_code ignored; // of links that lead nowhere
    found.push_back({entry->path(), entry->is_directory(ignored)});
  }
  if (error)
    remarks_.push_back(folder.string() + ": cannot be read: " + error.message());
  std::ranges::sort(found, {}, &folder_entry::path);
  return found;
}

} // namespace troupe
