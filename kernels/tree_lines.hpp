// The lines of a tree of rows: guesses of how one sequence goes on that branch. A row sees the cached prefix and its own
// ancestors, and stands at the position behind its parent. A line is a run of rows that follow each other; where rows
// branch, each further line has blocks of its own from its first position on, and K and V of its ancestors there. So
// attention, rotation and caches know lines only, and the bits of a row are those of the line that leads to it. Plain
// functions of whoever plans a step.
#pragma once

#include "kernels/ops.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe::kernels {

struct row_tree {
  /// rows consecutive rows, the first one behind the cached prefix, at first_position.
  sequence_rows rows;
  /// [rows], of each the row before it in its line, counted from the first; -1: the cached prefix. A parent comes
  /// before its children; in preorder, there are the fewest lines.
  std::span<const std::int32_t> parents;
  /// The sequence's block table: of the prefix and the longest line, then `spare_blocks` others.
  std::span<const std::int32_t> table;
};

/// [rows], how far each row is behind the first position.
std::vector<std::int32_t> depths_of(std::span<const std::int32_t> parents);

/// Blocks that the lines of a tree behind `first_position` need beside those of the longest one's positions.
std::int32_t spare_blocks(std::span<const std::int32_t> parents, std::int32_t first_position);

struct tree_lines {
  std::vector<sequence_rows> lines;  // in the order of rows; the first one is in the sequence's own blocks
  std::vector<std::int32_t> tables;  // of the lines
  std::vector<block_copy> before;    // the step: of the block in which the prefix ends
  std::vector<token_copy> common;    // behind the write of each layer's K and V: those of ancestors
  std::vector<std::int32_t> line_of; // [rows]
  std::vector<std::int32_t> own;     // the sequence's blocks
  std::vector<std::int32_t> parents; // [rows]

  /// Copies, behind the step, of the blocks of the line that ends with `row` to the sequence's own.
  std::vector<block_copy> keep(std::int32_t row) const;

  /// Of the rows from `first` on, those that lead to `row`, with itself: a bit for each. They are at most 64.
  std::uint64_t path_to(std::int32_t row, std::int32_t first) const;
};

/// `first_block` of the lines counts from the start of `tables`. Throws std::invalid_argument if the tree is none, or
/// its table is too short.
tree_lines lines_of(const row_tree& tree);

} // namespace troupe::kernels
