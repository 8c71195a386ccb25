// Models that are linked into the program's own file (api/packaging/one_file.sh). Readers map models from folders, so
// the program writes a bundled model to a folder on first use.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::cli {

/// A bundle is "NAME SIZE\n" and SIZE bytes for each file. Throws failure(bad_file) if it is no such thing, or if a
/// name leads out of a folder.
struct bundled_file {
  std::string_view name; // "storyteller/config.json"
  std::string_view content;
};
std::vector<bundled_file> read_bundle(std::string_view bundle);

/// Writes the files below `folder` unless they are there, each whole or not at all. Throws failure(bad_file).
void unpack_bundle(const std::vector<bundled_file>& files, const std::filesystem::path& folder);

/// The folder with this program's bundled files, which are written if they are not there: troupe/bundled-CHECKSUM in
/// $XDG_CACHE_HOME or ~/.cache, else below the folder for temporary files or /dev/shm. Nothing if the program has none.
/// Throws failure(bad_file) if there is nowhere to write to.
std::optional<std::filesystem::path> bundled_files();

} // namespace troupe::cli
