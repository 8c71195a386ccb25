// Decisions of the runner: how decode steps are padded, which copies wait.
#include "runtime/execution/gpu/block_hazards.hpp"
#include "runtime/execution/gpu/decode_buckets.hpp"

#include <doctest/doctest.h>

using namespace troupe;

namespace {

struct switched_event : kernels::device_event {
  bool on = false;
  bool happened() const override { return on; }
  void synchronise() const override {}
};

step_plan using_blocks(std::vector<std::int32_t> blocks) {
  step_plan plan;
  plan.block_tables = std::move(blocks);
  return plan;
}

} // namespace

TEST_CASE("decode steps are padded to few sizes, none by more than it holds or by eight") {
  int sizes = 0;
  for (int rows = 1; rows <= 256; ++rows) {
    const int bucket = bucket_of(rows);
    CHECK(bucket >= rows);
    CHECK(bucket < rows + (rows <= 8 ? rows : 8));
    CHECK(bucket_of(bucket) == bucket);
    sizes += bucket_of(rows) != bucket_of(rows - 1);
  }
  CHECK(sizes <= 35);
}

TEST_CASE("a block is in use until every step that names it is done") {
  block_hazards hazards;
  const auto first = std::make_shared<switched_event>(), second = std::make_shared<switched_event>();
  hazards.add(using_blocks({7, 3}), first);
  hazards.add(using_blocks({9, 3}), second);
  CHECK(hazards.in_use(3));
  CHECK(hazards.in_use(7));
  CHECK(hazards.in_use(9));
  CHECK_FALSE(hazards.in_use(4));
  first->on = true;
  CHECK_FALSE(hazards.in_use(7));
  CHECK(hazards.in_use(3));
  second->on = true;
  CHECK_FALSE(hazards.in_use(3));
}

TEST_CASE("steps that are done are forgotten, also where no blocks are moved and nobody asks") {
  block_hazards hazards;
  auto first = std::make_shared<switched_event>();
  const auto second = std::make_shared<switched_event>();
  hazards.add(using_blocks({7}), first);
  first->on = true;
  const std::weak_ptr<switched_event> kept = first;
  first.reset();
  hazards.add(using_blocks({9}), second);
  CHECK(kept.expired());
  CHECK(hazards.in_use(9));
}
