#include "runtime/support/machine/control_groups.hpp"

#include <fstream>
#include <iterator>
#include <sstream>

namespace troupe {

void for_each_group(std::string_view groups, std::string_view controller, const std::filesystem::path& mount,
                    const std::function<void(const std::filesystem::path& folder, bool unified)>& found) {
  std::istringstream lines{std::string(groups)};
  for (std::string line; std::getline(lines, line);) { // "4:memory:/a/b", or "0::/a/b" for version 2
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos)
      continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && ("," + controllers + ",").find("," + std::string(controller) + ",") == line.npos)
      continue;
    const auto root = unified ? mount : mount / controller;
    for (auto path = std::filesystem::path(line.substr(second + 1)).relative_path();; path = path.parent_path()) {
      found(root / path, unified);
      if (path.empty())
        break;
    }
  }
}

std::string own_groups() {
  std::ifstream file("/proc/self/cgroup");
  return {std::istreambuf_iterator(file), {}};
}

} // namespace troupe
