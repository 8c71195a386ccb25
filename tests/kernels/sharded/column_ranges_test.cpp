#include "kernels/sharded/column_ranges.hpp"
#include "kernels/sharded/sharded_cache.hpp"
#include "kernels/sharded/sharded_matrix.hpp"

#include <doctest/doctest.h>

using namespace troupe::kernels;

TEST_CASE("ranks divide all columns in order, at multiples of the unit and as evenly as these allow") {
  for (const std::size_t outputs : {1, 63, 64, 65, 128, 200, 1000, 4864, 50257})
    for (std::size_t ranks = 1; ranks <= 5; ++ranks) {
      CAPTURE(outputs);
      CAPTURE(ranks);
      std::size_t next = 0, last = outputs;
      for (std::size_t r = 0; r < ranks; ++r) {
        const auto range = columns_of(outputs, r, ranks, column_unit);
        CHECK(range.first == next);
        CHECK((range.first % column_unit == 0 || range.count == 0));
        CHECK(range.count <= (outputs / column_unit / ranks + 1) * column_unit);
        CHECK(range.count <= last); // ranks without columns are the last ones
        last = range.count;
        next += range.count;
      }
      CHECK(next == outputs);
      CHECK(columns_of(outputs, 0, ranks, column_unit).count > 0);
    }
}

TEST_CASE("a rank's part of a stack may have rows of several matrices; of gate and up it has the same rows") {
  const std::vector<float> q(40 * 2), k(10 * 2), v(10 * 2);
  const stored_matrix stack[] = {
    {q.data(), dtype::f32, 40, 2}, {k.data(), dtype::f32, 10, 2}, {v.data(), dtype::f32, 10, 2}};
  const auto cut = cut_stack(stack, {32, 20}, false);
  REQUIRE(cut.size() == 3);
  CHECK(cut[0].data == q.data() + 64);
  CHECK(cut[0].rows == 8);
  CHECK(cut[1].data == k.data());
  CHECK(cut[1].rows == 10);
  CHECK(cut[2].data == v.data());
  CHECK(cut[2].rows == 2);
  CHECK(cut_stack(stack, {0, 40}, false).size() == 1);
  const auto both = cut_stack({stack + 1, 2}, {4, 3}, true);
  REQUIRE(both.size() == 2);
  CHECK(both[0].data == k.data() + 8);
  CHECK(both[1].data == v.data() + 8);
  CHECK(both[1].rows == 3);
  CHECK_THROWS_AS(outputs_of({stack, 2}, true), std::invalid_argument);
}

TEST_CASE("low-rank pairs are cut where ranks are, and count from a rank's first output") {
  const std::vector<float> b(100);
  const low_rank_pair pairs[] = {{0, 40, 2, nullptr, b.data()}, {50, 10, 1, nullptr, b.data()}};
  const auto cut = cut_pairs(pairs, 60, {32, 20}, false);
  REQUIRE(cut.size() == 2);
  CHECK(cut[0].first_output == 0);
  CHECK(cut[0].outputs == 8);
  CHECK(cut[0].b == b.data() + 64);
  CHECK(cut[1].first_output == 18);
  CHECK(cut[1].outputs == 2);
  CHECK(cut[1].b == b.data());
  // gate has outputs 0 to 29, up 30 to 59; the rank has 16 to 29 of each.
  const auto both = cut_pairs(pairs, 60, {16, 14}, true);
  REQUIRE(both.size() == 2);
  CHECK(both[0].outputs == 14);
  CHECK(both[1].first_output == 18); // up's begin at 14 with output 46; the second pair's are 50 to 59
  CHECK(both[1].outputs == 10);
}

TEST_CASE("a step's rows are cut into sequences that begin where the rows before end") {
  const sequence_rows sequences[] = {{0, 5, 10, 0, 15}, {5, 1, 7, 3, 8}, {6, 4, 0, 4, 4}};
  std::vector<sequence_rows> cut;
  const batch step{sequences, {}};
  CHECK(rows_of(step) == 10);
  cut_rows(step, 3, 8, cut);
  REQUIRE(cut.size() == 3);
  CHECK(cut[0].first_row == 3);
  CHECK(cut[0].rows == 2);
  CHECK(cut[0].first_position == 13);
  CHECK(cut[0].length == 15);
  CHECK(cut[1].rows == 1);
  CHECK(cut[2].first_row == 6);
  CHECK(cut[2].rows == 2);
  CHECK(cut[2].first_position == 0);
  cut_rows(step, 0, 0, cut);
  CHECK(cut.empty());
}

TEST_CASE("rows are divided by the positions that they see") {
  const sequence_rows prompt{0, 1000, 0, 0, 1000};
  std::vector<std::int32_t> ends;
  divide_rows({{&prompt, 1}, {}}, 0, 2, ends);
  REQUIRE(ends.size() == 2);
  CHECK(ends[0] > 650); // half of the square is at 707, but every row costs something
  CHECK(ends[0] < 707);
  CHECK(ends[1] == 1000);
  divide_rows({{&prompt, 1}, {}}, 1, 4, ends);
  CHECK(ends == std::vector<std::int32_t>{250, 500, 750, 1000});
  const sequence_rows decodes[] = {{0, 1, 5000, 0, 5001}, {1, 1, 3, 0, 4}, {2, 1, 3, 0, 4}};
  divide_rows({decodes, {}}, 0, 2, ends); // one row has nearly all
  CHECK(ends.back() == 3);
  CHECK(ends.size() <= 2);
  CHECK(ends.front() == 1);
  divide_rows({}, 0, 2, ends);
  CHECK(ends.empty());
}
