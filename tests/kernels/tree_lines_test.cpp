#include "kernels/tree_lines.hpp"
#include "tests/kernels/support.hpp"

#include <algorithm>
#include <map>
#include <numeric>

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

namespace {

std::vector<std::int32_t> random_tree(generator& random, int rows) {
  std::vector<std::int32_t> parents{-1};
  while (std::ssize(parents) < rows)
    parents.push_back(random.below(3) > 0 ? static_cast<int>(parents.size()) - 1
                                          : random.below(static_cast<int>(parents.size()) + 1) - 1);
  return parents;
}

/// The rows of the line that leads to a row, which it ends with.
std::vector<int> path_to(std::span<const std::int32_t> parents, int row) {
  std::vector<int> path;
  for (; row >= 0; row = parents[std::size_t(row)])
    path.push_back(row);
  std::ranges::reverse(path);
  return path;
}

std::vector<std::int32_t> shuffled(int blocks, generator& random) {
  std::vector<std::int32_t> table(std::size_t(blocks), 0);
  std::iota(table.begin(), table.end(), 0);
  std::ranges::shuffle(table, random.engine);
  return table;
}

int blocks_of(std::span<const std::int32_t> parents, int prefix) {
  return (prefix + std::ranges::max(depths_of(parents))) / block_tokens + 1 + spare_blocks(parents, prefix);
}

} // namespace

TEST_CASE("a tree whose rows have one child each is one line, which needs nothing") {
  const std::int32_t parents[] = {-1, 0, 1, 2};
  const std::int32_t table[] = {5, 3};
  const auto tree = lines_of({{7, 4, 14, 0, 18}, parents, table});
  REQUIRE(tree.lines.size() == 1);
  CHECK(tree.lines[0].first_row == 7);
  CHECK(tree.lines[0].rows == 4);
  CHECK(tree.lines[0].first_position == 14);
  CHECK(tree.tables == std::vector<std::int32_t>{5, 3});
  CHECK(tree.before.empty());
  CHECK(tree.common.empty());
  CHECK(tree.keep(3).empty());
  CHECK(spare_blocks(parents, 14) == 0);
}

TEST_CASE("each line of a tree finds the prefix and its ancestors in its blocks, and what is kept is the sequence's") {
  generator random(3);
  int branched = 0;
  for (int round = 0; round < 400; ++round) {
    const int prefix = random.below(50);
    const auto parents = random_tree(random, 1 + random.below(30));
    const auto depths = depths_of(parents);
    const auto table = shuffled(blocks_of(parents, prefix), random);
    const int first_row = random.below(4);
    const auto tree = lines_of({{first_row, static_cast<int>(parents.size()), prefix, 0, 0}, parents, table});
    branched += tree.lines.size() > 1;

    std::map<std::pair<std::int32_t, int>, int> memory; // block and place -> token: prefix positions, 1000 + rows
    for (int p = 0; p < prefix; ++p)
      memory[{table[std::size_t(p / block_tokens)], p % block_tokens}] = p;
    const auto copy = [&](std::span<const block_copy> copies) {
      for (const auto& c : copies)
        for (int i = 0; i < block_tokens; ++i)
          memory[{c.to, i}] = memory[{c.from, i}];
    };
    copy(tree.before);
    int row = first_row;
    for (const auto& line : tree.lines) {
      CHECK(line.first_row == row);
      for (int i = 0; i < line.rows; ++i, ++row) {
        const int p = line.first_position + i;
        CHECK(p == prefix + depths[std::size_t(row - first_row)]);
        memory[{tree.tables[std::size_t(line.first_block + p / block_tokens)], p % block_tokens}] = 1000 + row -
          first_row;
      }
    }
    CHECK(row == first_row + std::ssize(parents));
    for (const auto& c : tree.common)
      memory[{c.to, c.place}] = memory[{c.from, c.place}];
    const auto check = [&](const std::vector<int>& path, std::span<const std::int32_t> blocks) {
      for (int p = 0; p < prefix + std::ssize(path); ++p)
        CHECK(memory[{blocks[std::size_t(p / block_tokens)], p % block_tokens}] ==
              (p < prefix ? p : 1000 + path[std::size_t(p - prefix)]));
    };
    for (int i = 0; i < std::ssize(parents); ++i) {
      const auto& line = tree.lines[std::size_t(tree.line_of[std::size_t(i)])];
      check(path_to(parents, i), std::span(tree.tables).subspan(std::size_t(line.first_block)));
      std::uint64_t behind_second = 0;
      for (const int row : path_to(parents, i))
        behind_second |= row < 2 ? 0 : std::uint64_t(1) << (row - 2);
      CHECK(tree.path_to(i, 2) == behind_second);
    }
    const auto last = random.below(static_cast<int>(parents.size()));
    copy(tree.keep(last));
    check(path_to(parents, last), table);
  }
  CHECK(branched > 200);
}

TEST_CASE("what is no tree is refused") {
  const std::int32_t table[] = {0, 1, 2, 3};
  const auto refuses = [&](std::vector<std::int32_t> parents, int rows, int blocks) {
    CHECK_THROWS_AS(lines_of({{0, rows, 3, 0, 0}, parents, std::span(table).first(std::size_t(blocks))}),
                    std::invalid_argument);
  };
  refuses({-1, 1}, 2, 4);
  refuses({-1, 2, 0}, 3, 4);
  refuses({0}, 1, 4);
  refuses({-1, -2}, 2, 4);
  refuses({-1, 0}, 3, 4);
  refuses({-1, 0, 0}, 3, 1); // the second line has no block
}

TEST_CASE("a row of a tree has the bits of the line that leads to it") {
  generator random(11);
  for (const isa target : tested_isas())
    for (const kv_type type : {kv_type::f32, kv_type::bf16, kv_type::int8, kv_type::fp8})
      for (int round = 0; round < 5; ++round) {
        const int prefix = std::vector{0, 13, 250, 256, 500}[std::size_t(round)] + random.below(3), kv_heads = 2;
        const int heads = kv_heads * std::vector{1, 3, 4}[std::size_t(random.below(3))];
        const int dim = std::vector{16, 50, 64}[std::size_t(random.below(3))];
        CAPTURE(std::string(to_string(target)));
        CAPTURE(to_string(type));
        CAPTURE(prefix);
        CAPTURE(dim);
        const auto parents = random_tree(random, 2 + random.below(62));
        const int rows = static_cast<int>(parents.size());
        const auto table = shuffled(blocks_of(parents, prefix), random);
        const std::size_t columns = std::size_t(heads + 2 * kv_heads) * dim, width = std::size_t(heads) * dim;
        const auto device = make_backend(target, 1 + random.below(3));
        const auto rope = random.normal(std::size_t(prefix + rows) * dim);
        const auto context = random.normal(std::size_t(prefix) * columns), values = random.normal(rows * columns);
        /// Writes rows behind the prefix and attends to them.
        const auto run = [&](std::vector<float> qkv, std::span<const sequence_rows> who,
                             std::span<const std::int32_t> tables, const tree_lines* tree) {
          const auto cache = device->make_kv_cache({2, kv_heads, dim, type, table.size()});
          const auto write = [&](std::vector<float>& from, std::span<const sequence_rows> which,
                                 std::span<const std::int32_t> blocks) {
            device->rope_write_kv({from.data(), dtype::f32, from.size() / columns, columns, columns}, heads, {},
                                  rope.data(), *cache, 1, {which, blocks});
          };
          if (const sequence_rows before{0, prefix, 0, 0}; prefix > 0) {
            auto own = context;
            write(own, {&before, 1}, table);
          }
          if (tree != nullptr)
            device->copy_blocks(*cache, tree->before);
          write(qkv, who, tables);
          if (tree != nullptr)
            device->copy_tokens(*cache, 1, tree->common);
          const auto count = qkv.size() / columns;
          numbers out(dtype::f32, count * width);
          device->attention(out.rows(count), {qkv.data(), dtype::f32, count, columns, columns}, heads, 0.25f, 0, *cache,
                            1, {who, tables});
          return out;
        };
        const auto tree = lines_of({{0, rows, prefix, 0, 0}, parents, table});
        const auto got = run(values, tree.lines, tree.tables, &tree);
        for (int row = 0; row < rows; ++row) {
          if (std::ranges::find(parents, row) != parents.end() && random.below(8) > 0)
            continue; // it is in the line of its children
          const auto path = path_to(parents, row);
          std::vector<float> line;
          for (const int i : path)
            line.insert(line.end(), values.begin() + std::ptrdiff_t(std::size_t(i) * columns),
                        values.begin() + std::ptrdiff_t(std::size_t(i + 1) * columns));
          const sequence_rows alone{0, static_cast<int>(path.size()), prefix, 0};
          const auto want = run(line, {&alone, 1}, table, nullptr);
          for (std::size_t i = 0; i < path.size(); ++i)
            CHECK(got.slice(std::size_t(path[i]) * width, width) == want.slice(i * width, width));
        }
      }
}
