#include "runtime/execution/featured_rows.hpp"

#include <map>
#include <string_view>
#include <utility>

namespace troupe {

namespace {

const kernels::sequence_rows& rows_of(const step_plan& plan, const featured_sequence& of) {
  return plan.sequences[static_cast<std::size_t>(of.place)];
}

} // namespace

std::vector<layer_hook> row_hooks(const step_plan& plan, kernels::backend& backend, float embedding_scale) {
  std::map<std::string_view, std::vector<used_rows>> by_name; // the order does not depend on who is in the step
  for (const auto& each : plan.featured)
    for (const auto& use : each.features->used)
      if (use->changes_rows()) {
        const auto& its = rows_of(plan, each);
        by_name[use->of().name].push_back({use.get(), its.first_row, its.first_position, its.rows});
      }
  std::vector<layer_hook> result;
  for (auto& [name, rows] : by_name)
    result.push_back(rows.front().by->of().change_rows(backend, std::move(rows), embedding_scale));
  return result;
}

std::vector<added_rows> added_rows_of(const step_plan& plan) {
  std::vector<added_rows> result;
  for (const auto& each : plan.featured)
    for (const auto& use : each.features->used)
      if (const auto* by = use->products())
        result.push_back({by, rows_of(plan, each).first_row, rows_of(plan, each).rows});
  return result;
}

} // namespace troupe
