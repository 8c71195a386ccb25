#include "runtime/checkpoint/packed/cache_folder.hpp"

#include "runtime/support/files/atomic_file.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <chrono>
#include <cstdlib>
#include <set>

using namespace troupe;
using namespace troupe::test;

namespace {

namespace fs = std::filesystem;

constexpr cache_limits limits_of(std::size_t bytes) { return {.most_bytes = bytes, .leaves_a_tenth = false}; }

constexpr std::string_view some_mark = "xx";

/// A file that was last used so many hours ago.
void put(const fs::path& folder, const std::string& name, std::size_t bytes, int hours) {
  write(folder / name, std::string(bytes, 'x'));
  fs::last_write_time(folder / name, fs::file_time_type::clock::now() - std::chrono::hours(hours));
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.insert(entry.path().filename());
  return names;
}

std::string make(const fs::path& folder, std::size_t bytes, const cache_limits& limits) {
  return make_room(own_folder(folder), "new.packed", {".packed", some_mark}, bytes, limits);
}

} // namespace

TEST_CASE("The files that were used longest ago make way for a new one, and no more than must") {
  const temp_folder folder;
  const auto& path = folder.path();
  put(path, "old.packed", 100, 3);
  put(path, "older.packed", 100, 4);
  put(path, "oldest.packed", 100, 5);
  CHECK(make(path, 100, limits_of(400)).empty());
  CHECK(names_in(path).size() == 3);
  CHECK(make(path, 101, limits_of(400)).empty());
  CHECK(names_in(path) == std::set<std::string>{"old.packed", "older.packed"});
  mark_used(path / "older.packed");
  CHECK(make(path, 300, limits_of(400)).empty());
  CHECK(names_in(path) == std::set<std::string>{"older.packed"});
  CHECK(make(path, 400, limits_of(400)).empty());
  CHECK(names_in(path).empty());
}

TEST_CASE("Only files of packed weights make way, and neither the one that is replaced nor folders and links") {
  const temp_folder folder;
  const auto& path = folder.path();
  put(path, "model.gguf", 1000, 9);
  put(path, "new.packed", 1000, 9);
  put(path, "other.packed", 10, 1);
  fs::create_directory(path / "folder.packed");
  fs::create_symlink(path / "model.gguf", path / "link.packed");
  write(path / "lunch.packed", "sandwiches");
  CHECK(make(path, 1000, limits_of(1000)).empty());
  CHECK(names_in(path) ==
        std::set<std::string>{"folder.packed", "link.packed", "lunch.packed", "model.gguf", "new.packed"});
}

TEST_CASE("A file that is larger than the bound, or that would fill the disk, has no room, and nothing is removed") {
  const temp_folder folder;
  const auto& path = folder.path();
  put(path, "other.packed", 10, 1);
  CHECK(make(path, 2048, limits_of(1024)) == "a file of 2.0 KiB is more than the 1.0 KiB that all may take");
  const auto disk = static_cast<std::size_t>(fs::space(path).capacity);
  CHECK(make(path, disk / 2, {}).starts_with("a file of ")); // more than a tenth
  CHECK(make(path, disk, {.most_bytes = disk}).find("would leave less than a tenth of the disk free, which has ") !=
        std::string::npos);
  CHECK(names_in(path).size() <= 1); // the last attempt needed what the other file takes
}

TEST_CASE("What dead writers have left is removed, and what living ones write is not") {
  const temp_folder folder;
  const auto& path = folder.path();
  put(path, ".dead.packed.troupe-partial", 10, 0);
  put(path, ".new.packed.troupe-partial", 10, 0); // its writer begins anew
  const auto living = atomic_file::begin(path / "living.packed", 100);
  REQUIRE(living);
  CHECK(make(path, 10, limits_of(1024)).empty());
  CHECK(names_in(path) == std::set<std::string>{".living.packed.troupe-partial", ".new.packed.troupe-partial"});
}

TEST_CASE("The user's folder for caches is named by the environment") {
  const auto restore = [](const char* name) {
    const char* value = std::getenv(name);
    return [name, value = value != nullptr ? std::optional<std::string>(value) : std::nullopt] {
      value ? setenv(name, value->c_str(), 1) : unsetenv(name);
    };
  };
  const auto home = restore("HOME"), caches = restore("XDG_CACHE_HOME");
  setenv("HOME", "/home/me", 1);
  unsetenv("XDG_CACHE_HOME");
  CHECK(user_cache_folder() == "/home/me/.cache/troupe");
  setenv("XDG_CACHE_HOME", "/caches", 1);
  CHECK(user_cache_folder() == "/caches/troupe");
  setenv("XDG_CACHE_HOME", "relative", 1); // to be ignored, says the specification
  CHECK(user_cache_folder() == "/home/me/.cache/troupe");
  unsetenv("HOME");
  CHECK(user_cache_folder().empty());
  home();
  caches();
}
