#include "runtime/execution/featured_rows.hpp"

#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/techniques/dola/dola_rows.hpp"
#include "runtime/techniques/dola/technique.hpp"

#include <doctest/doctest.h>

#include <string>

using namespace troupe;

namespace {

row_features_ptr features(row_features of) { return std::make_shared<const row_features>(std::move(of)); }

std::string seen; // what techniques were given, in order

layer_hook note_rows(kernels::backend&, std::vector<used_rows> rows, float) {
  std::string text(rows.front().by->of().name);
  for (const auto& each : rows)
    text += " " + std::to_string(each.first_row) + "+" + std::to_string(each.rows) + "@" +
      std::to_string(each.first_position);
  return [text](int, const kernels::tensor&) { seen += text + ";"; };
}

const technique technique_a{.name = "a", .change_rows = note_rows}, technique_b{.name = "b", .change_rows = note_rows};

class noted_use final : public technique_use {
public:
  explicit noted_use(const technique& of, const product_terms* terms = nullptr) : of_(of), terms_(terms) {}
  const technique& of() const override { return of_; }
  bool changes_rows() const override { return true; }
  const product_terms* products() const override { return terms_; }

private:
  const technique& of_;
  const product_terms* terms_;
};

technique_uses uses(std::initializer_list<technique_use_ptr> all) {
  technique_uses result;
  for (const auto& each : all)
    result.set(each);
  return result;
}

} // namespace

TEST_CASE("each feature finds the rows of the sequences that have it") {
  const product_terms terms{};
  const auto a = std::make_shared<noted_use>(technique_a), b = std::make_shared<noted_use>(technique_b),
             adding = std::make_shared<noted_use>(technique_b, &terms);
  step_plan plan;
  plan.sequences = {{0, 3, 0, 0}, {3, 1, 17, 1}, {4, 2, 4, 3}};
  plan.featured = {{features({.used = uses({b, contrasted_with(dola_layers({0, 1}))})}), 0, 2, 1},
                   {features({.salt = 7}), 1},
                   {features({.used = uses({adding, a, contrasted_with(dola_layers({1}))})}), 2}};
  const auto backend = kernels::make_cpu_backend({.threads = 1});
  seen.clear();
  for (const auto& hook : row_hooks(plan, *backend, 1))
    hook(0, {});
  CHECK(seen == "a 4+2@4;b 0+3@0 4+2@4;"); // by name, whoever comes first
  const auto added = added_rows_of(plan);
  REQUIRE(added.size() == 1);
  CHECK(added[0].by == &terms);
  CHECK(added[0].first_row == 4);
  CHECK(added[0].rows == 2);
  const auto layered = layered_logits_of(plan); // the third sequence samples nothing
  REQUIRE(layered.size() == 1);
  CHECK(layered[0].logit_row == 2);
  CHECK(layered[0].rows == 1);
}

TEST_CASE("a plan without features has no such rows") {
  step_plan plan;
  plan.sequences = {{0, 3, 0, 0}};
  const auto backend = kernels::make_cpu_backend({.threads = 1});
  CHECK(row_hooks(plan, *backend, 1).empty());
  CHECK(added_rows_of(plan).empty());
  CHECK(layered_logits_of(plan).empty());
}
