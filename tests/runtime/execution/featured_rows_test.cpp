#include "runtime/execution/featured_rows.hpp"

#include <doctest/doctest.h>

using namespace troupe;

namespace {

row_features_ptr features(row_features of) { return std::make_shared<const row_features>(std::move(of)); }

} // namespace

TEST_CASE("each feature finds the rows of the sequences that have it") {
  const auto steered = std::make_shared<const steering>();
  step_plan plan;
  plan.sequences = {{0, 3, 0, 0}, {3, 1, 17, 1}, {4, 2, 4, 3}};
  plan.featured = {{features({.steering = steered, .layers = dola_layers({0, 1})}), 0, 2, 1},
                   {features({.contrasted = true}), 1},
                   {features({.steering = steered, .contrasted = true, .layers = dola_layers({1})}), 2}};
  const auto rows = steered_rows_of(plan);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].by == steered);
  CHECK(rows[1].first_row == 4);
  CHECK(rows[1].rows == 2);
  CHECK(adapted_rows_of(plan).empty());
  CHECK(contrasted_places(plan) == std::vector<std::int32_t>{1, 2});
  const auto layered = layered_logits_of(plan); // the third sequence samples nothing
  REQUIRE(layered.size() == 1);
  CHECK(layered[0].logit_row == 2);
  CHECK(layered[0].rows == 1);
}

TEST_CASE("a plan without features has no such rows") {
  step_plan plan;
  plan.sequences = {{0, 3, 0, 0}};
  CHECK(steered_rows_of(plan).empty());
  CHECK(adapted_rows_of(plan).empty());
  CHECK(contrasted_places(plan).empty());
  CHECK(layered_logits_of(plan).empty());
}
