#include "api/cli/bundled_files.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/files/atomic_file.hpp"
#include "runtime/support/files/checksum.hpp"
#include "runtime/support/files/own_folder.hpp"
#include "runtime/support/text/hex.hpp"

#include <charconv>
#include <cstdlib>
#include <system_error>

#include <unistd.h>

// Symbols of the object that one_file.sh links in. They are null in other programs.
extern "C" {
extern const char troupe_bundle_begin[] __attribute__((weak));
extern const char troupe_bundle_end[] __attribute__((weak));
}

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_bundle() {
  throw failure(errc::bad_file, "the files that are part of this program are damaged");
}

bool may_be_unpacked(std::string_view name) {
  return !name.empty() && name.front() != '/' && name.find("..") == name.npos && name.find('\0') == name.npos;
}

fs::path folder_named_by(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? value : "";
}

} // namespace

std::vector<bundled_file> read_bundle(std::string_view bundle) {
  std::vector<bundled_file> files;
  while (!bundle.empty()) {
    const auto line = bundle.substr(0, bundle.find('\n'));
    const auto blank = line.rfind(' ');
    std::size_t size = 0;
    if (line.size() == bundle.size() || blank == line.npos || !may_be_unpacked(line.substr(0, blank)))
      refuse_bundle();
    const auto [end, error] = std::from_chars(line.data() + blank + 1, line.data() + line.size(), size);
    if (end != line.data() + line.size() || error != std::errc())
      refuse_bundle();
    bundle.remove_prefix(line.size() + 1);
    if (size > bundle.size())
      refuse_bundle();
    files.push_back({line.substr(0, blank), bundle.substr(0, size)});
    bundle.remove_prefix(size);
  }
  return files;
}

void unpack_bundle(const std::vector<bundled_file>& files, const fs::path& folder) {
  for (const auto& [name, content] : files) {
    const auto path = folder / name;
    std::error_code error;
    if (fs::file_size(path, error) == content.size() && !error)
      continue;
    fs::create_directories(path.parent_path(), error);
    if (error)
      throw failure(errc::bad_file, path.parent_path().string() + ": cannot be written: " + error.message());
    write_file(path, content); // or another process does
  }
}

std::optional<fs::path> bundled_files() {
  if (!troupe_bundle_begin)
    return std::nullopt;
  const std::string_view bundle(troupe_bundle_begin, static_cast<std::size_t>(troupe_bundle_end - troupe_bundle_begin));
  static const auto unpacked = [&] {
    const auto files = read_bundle(bundle);
    checksum sum;
    sum.add(std::as_bytes(std::span(bundle)));
    const auto name = "bundled-" + std::to_string(sum.value());
    std::vector<fs::path> places;
    if (auto caches = folder_named_by("XDG_CACHE_HOME"); !caches.empty())
      places.push_back(caches / "troupe");
    if (auto home = folder_named_by("HOME"); !home.empty())
      places.push_back(home / ".cache" / "troupe");
    const auto own = "troupe-" + std::to_string(getuid());
    if (auto temporary = folder_named_by("TMPDIR"); !temporary.empty())
      places.push_back(temporary / own);
    places.push_back(fs::path("/tmp") / own);
    places.push_back(fs::path("/dev/shm") / own);
    for (const auto& place : places)
      try {
        for (const auto& folder : {place, place / name})
          own_folder{folder}; // whose files are believed
        unpack_bundle(files, place / name);
        return place / name;
      } catch (const failure& e) {
        if (place == places.back())
          throw;
      }
    return fs::path();
  }();
  return unpacked;
}

} // namespace troupe::cli
