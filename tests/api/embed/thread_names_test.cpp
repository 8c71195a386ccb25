// What threads of an engine are called.
#include "tests/api/embed/small_engine.hpp"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>
#include <vector>

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
  // A thread has the name of its parent until it runs.
  const auto unnamed = [&] {
    std::vector<std::string> names;
    for (const auto& [id, name] : named_threads())
      if (!before.contains(id) && !name.starts_with("troupe."))
        names.push_back(name);
    return names;
  };
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
       !unnamed().empty() && std::chrono::steady_clock::now() < end;)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(unnamed() == std::vector<std::string>{});
  std::size_t own = 0;
  for (const auto& [id, name] : named_threads())
    if (const auto known = before.find(id); known != before.end())
      CHECK(name == known->second);
    else
      ++own;
  CHECK(own >= 4);
}
