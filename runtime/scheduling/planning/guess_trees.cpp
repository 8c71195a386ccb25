#include "runtime/scheduling/planning/guess_trees.hpp"

#include "kernels/tree_lines.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>

namespace troupe {

std::int32_t depth_of(const guess_run& guesses) {
  if (guesses.parents.empty())
    return static_cast<std::int32_t>(guesses.tokens.size());
  return 1 + std::ranges::max(kernels::depths_of(guesses.parents));
}

std::int32_t first_line(const guess_run& guesses) {
  std::int32_t line = 0;
  while (line < std::ssize(guesses.tokens) && (guesses.parents.empty() || guesses.parents[as_size(line)] == line - 1))
    ++line;
  return line;
}

void fit(guess_run& guesses, std::int32_t most, std::int32_t depth, bool trees) {
  auto count = std::clamp(most, 0, static_cast<std::int32_t>(guesses.tokens.size()));
  if (guesses.parents.empty()) {
    count = std::clamp(depth, 0, count);
  } else {
    const auto depths = kernels::depths_of(guesses.parents);
    const auto deep = std::ranges::find_if(depths, [depth](std::int32_t d) { return d >= depth; }) - depths.begin();
    count = std::min(count, static_cast<std::int32_t>(deep));
    if (const auto line = first_line(guesses); count <= line || !trees) {
      count = std::min(count, line);
      guesses.parents.clear();
    } else {
      guesses.parents.resize(as_size(count));
    }
  }
  guesses.tokens.resize(as_size(count));
}

std::vector<std::int32_t> row_parents(std::int32_t known, std::span<const std::int32_t> guesses) {
  std::vector<std::int32_t> parents;
  for (std::int32_t row = 0; row < known; ++row)
    parents.push_back(row - 1);
  for (const auto parent : guesses)
    parents.push_back(known + parent);
  return parents;
}

} // namespace troupe
