#include "runtime/import/hub_cache.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/files/file_reading.hpp"

#include <algorithm>
#include <cstdlib>
#include <system_error>

namespace troupe {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "models--", separator = "--";
constexpr file_kind reference_file{"the name of a version", 256};

bool is_part(std::string_view text) {
  const auto letter = [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
      c == '.';
  };
  return !text.empty() && text.size() <= 96 && text.front() != '.' && text.front() != '-' &&
    std::ranges::all_of(text, letter);
}

fs::path variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

} // namespace

bool is_hub_id(std::string_view model) {
  const auto slash = model.find('/');
  return slash != model.npos && is_part(model.substr(0, slash)) && is_part(model.substr(slash + 1));
}

fs::path hub_cache() {
  if (const auto given = variable("HF_HUB_CACHE"); !given.empty())
    return given;
  if (const auto home = variable("HF_HOME"); !home.empty())
    return home / "hub";
  const auto caches = variable("XDG_CACHE_HOME");
  return (caches.empty() ? variable("HOME") / ".cache" : caches) / "huggingface" / "hub";
}

std::string hub_repository_of(std::string_view id) {
  std::string folder(prefix);
  const auto slash = id.find('/');
  folder += id.substr(0, slash);
  if (slash != id.npos)
    folder.append(separator).append(id.substr(slash + 1));
  return folder;
}

std::optional<std::string> hub_id_of_repository(std::string_view folder) {
  if (!folder.starts_with(prefix))
    return std::nullopt;
  std::string id(folder.substr(prefix.size()));
  if (const auto at = id.find(separator); at != id.npos)
    id.replace(at, separator.size(), "/");
  return is_hub_id(id) || is_part(id) ? std::optional(id) : std::nullopt;
}

std::optional<fs::path> find_in_hub_cache(std::string_view id) {
  return version_in_hub_cache(hub_cache() / hub_repository_of(id));
}

std::optional<fs::path> version_in_hub_cache(const fs::path& repository) {
  const auto reference = repository / "refs" / "main";
  if (!is_there(reference))
    return std::nullopt;
  auto version = read_file(reference, reference_file);
  version.erase(std::min(version.find_last_not_of(" \r\n") + 1, version.size()));
  if (!is_part(version))
    throw failure(errc::bad_file, reference.string() + ": names no version");
  const auto snapshot = repository / "snapshots" / version;
  return is_there(snapshot) ? std::optional(snapshot) : std::nullopt;
}

std::optional<std::string> hub_id_of(const fs::path& folder) {
  std::error_code ignored;
  const auto full = fs::weakly_canonical(folder, ignored);
  const auto snapshots = full.parent_path();
  return snapshots.filename() == "snapshots" ? hub_id_of_repository(snapshots.parent_path().filename().string())
                                             : std::nullopt;
}

} // namespace troupe
