// Reads folders that may be anybody's: each once, whatever links lead to it, and no more entries in all than a bound.
// One thread.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

struct folder_entry {
  std::filesystem::path path;
  bool is_folder = false; // or a link to one
};

class folder_walk {
public:
  /// `remarks` receives a sentence about each folder that cannot be read, and one when the bound is reached.
  folder_walk(std::vector<std::string>& remarks, std::size_t most_entries) : remarks_(remarks), left_(most_entries) {}

  /// Sorted by name. Empty for folders that were read before, do not exist, or cannot be read.
  std::vector<folder_entry> entries(const std::filesystem::path& folder);

private:
  std::vector<std::string>& remarks_;
  std::size_t left_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> seen_; // device and number of folders
};

} // namespace troupe
