#include "kernels/tree_lines.hpp"

#include <algorithm>
#include <stdexcept>

namespace troupe::kernels {

namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

constexpr std::int32_t block_of(std::int32_t position) { return position / block_tokens; }

bool begins_line(std::span<const std::int32_t> parents, std::int32_t row) { return parents[at(row)] != row - 1; }

/// The row behind the last one of the line that begins with `first`.
std::int32_t end_of_line(std::span<const std::int32_t> parents, std::int32_t first) {
  auto end = first + 1;
  while (end < std::ssize(parents) && !begins_line(parents, end))
    ++end;
  return end;
}

} // namespace

std::vector<std::int32_t> depths_of(std::span<const std::int32_t> parents) {
  std::vector<std::int32_t> depths;
  for (const auto parent : parents) {
    if (parent < -1 || parent >= std::ssize(depths))
      throw std::invalid_argument("a tree of rows: a parent must come before its children");
    depths.push_back(parent < 0 ? 0 : depths[at(parent)] + 1);
  }
  return depths;
}

std::int32_t spare_blocks(std::span<const std::int32_t> parents, std::int32_t first_position) {
  const auto depths = depths_of(parents);
  std::int32_t blocks = 0;
  for (std::int32_t row = 0, end = 0; row < std::ssize(parents); row = end) {
    end = end_of_line(parents, row);
    if (row > 0)
      blocks += block_of(first_position + depths[at(end - 1)]) - block_of(first_position + depths[at(row)]) + 1;
  }
  return blocks;
}

tree_lines lines_of(const row_tree& tree) {
  const auto& [rows, parents, table] = tree;
  const auto depths = depths_of(parents);
  if (rows.rows != std::ssize(parents) || parents.empty() || parents.front() != -1)
    throw std::invalid_argument("a tree of rows: the first one follows the prefix, and each has a parent");
  const auto own = block_of(rows.first_position + *std::ranges::max_element(depths)) + 1;
  if (std::ssize(table) < own + spare_blocks(parents, rows.first_position))
    throw std::invalid_argument("a tree of rows: its block table is too short");
  tree_lines result;
  result.parents.assign(parents.begin(), parents.end());
  result.own.assign(table.begin(), table.begin() + own);
  auto spare = table.begin() + own;
  const auto entry = [&](std::int32_t line, std::int32_t block) { // of a line's table
    return result.tables[at(result.lines[at(line)].first_block + block)];
  };
  for (std::int32_t row = 0, end = 0; row < rows.rows; row = end) {
    end = end_of_line(parents, row);
    const auto first = rows.first_position + depths[at(row)], last = rows.first_position + depths[at(end - 1)];
    const auto line = static_cast<std::int32_t>(result.lines.size()), parent = parents[at(row)];
    const auto begin = static_cast<std::int32_t>(result.tables.size());
    if (row == 0) {
      result.tables.insert(result.tables.end(), table.begin(), table.begin() + block_of(last) + 1);
    } else {
      for (std::int32_t block = 0; block < block_of(first);
           ++block) // that its parent's line has written, or the prefix
        result.tables.push_back(parent < 0 ? table[at(block)] : entry(result.line_of[at(parent)], block));
      const auto private_first = *spare;
      for (auto block = block_of(first); block <= block_of(last); ++block)
        result.tables.push_back(*spare++);
      const auto start = block_of(first) * block_tokens;
      if (start < rows.first_position)
        result.before.push_back({table[at(block_of(first))], private_first});
      for (auto ancestor = parent; ancestor >= 0 && rows.first_position + depths[at(ancestor)] >= start;
           ancestor = parents[at(ancestor)])
        result.common.push_back({entry(result.line_of[at(ancestor)], block_of(first)), private_first,
                                 (rows.first_position + depths[at(ancestor)]) % block_tokens});
    }
    result.lines.push_back({rows.first_row + row, end - row, first, begin, rows.length, rows.second});
    result.line_of.resize(at(end), line);
  }
  return result;
}

std::vector<block_copy> tree_lines::keep(std::int32_t row) const {
  const auto& line = lines[at(line_of[at(row)])];
  const auto last = line.first_position + lines.front().first_row + row - line.first_row;
  std::vector<block_copy> copies;
  for (std::int32_t block = 0; block <= block_of(last); ++block)
    if (const auto from = tables[at(line.first_block + block)]; from != own[at(block)])
      copies.push_back({from, own[at(block)]});
  return copies;
}

std::uint64_t tree_lines::path_to(std::int32_t row, std::int32_t first) const {
  std::uint64_t path = 0;
  for (; row >= first; row = parents[at(row)])
    path |= std::uint64_t(1) << (row - first);
  return path;
}

} // namespace troupe::kernels
