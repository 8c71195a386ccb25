// What threads of an engine are called.
#include "tests/api/embed/small_engine.hpp"

#include <filesystem>
#include <fstream>
#include <map>

using namespace troupe;
using namespace troupe::testing;

namespace {

/// The process's threads.
std::map<std::string, std::string> named_threads() {
  std::map<std::string, std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    if (std::ifstream in(entry.path() / "comm"); std::getline(in, name))
      names.emplace(entry.path().filename(), name);
  }
  return names;
}

} // namespace

TEST_CASE("the threads of an engine are called after it, and the program's keep their names") {
  const auto before = named_threads();
  auto options = small();
  options.compute.threads = 2;
  const auto e = engine::start(options);
  run(e, ask({0, 5, 9}, 4));
  std::size_t own = 0;
  for (const auto& [id, name] : named_threads())
    if (const auto known = before.find(id); known != before.end()) {
      CHECK(name == known->second);
    } else {
      CHECK_MESSAGE(name.starts_with("troupe."), name);
      ++own;
    }
  CHECK(own >= 4);
}
