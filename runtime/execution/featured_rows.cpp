#include "runtime/execution/featured_rows.hpp"

#include <algorithm>

namespace troupe {

namespace {

const kernels::sequence_rows& rows_of(const step_plan& plan, const featured_sequence& of) {
  return plan.sequences[static_cast<std::size_t>(of.place)];
}

} // namespace

std::vector<steered_rows> steered_rows_of(const step_plan& plan) {
  std::vector<steered_rows> result;
  for (const auto& each : plan.featured)
    if (const auto& by = each.features->steering)
      result.push_back({by, rows_of(plan, each).first_row, rows_of(plan, each).rows});
  return result;
}

std::vector<adapted_rows> adapted_rows_of(const step_plan& plan) {
  std::vector<adapted_rows> result;
  for (const auto& each : plan.featured)
    if (const auto& by = each.features->adapter)
      result.push_back({by, rows_of(plan, each).first_row, rows_of(plan, each).rows});
  return result;
}

std::vector<given_rows> given_rows_of(const step_plan& plan) {
  std::vector<given_rows> result;
  for (const auto& each : plan.featured)
    if (const auto& from = each.features->embeddings) {
      const auto& its = rows_of(plan, each);
      const auto rows = std::min(its.rows, from->rows - its.first_position);
      if (rows > 0)
        result.push_back({from, its.first_row, its.first_position, rows});
    }
  return result;
}

std::vector<std::int32_t> contrasted_places(const step_plan& plan) {
  std::vector<std::int32_t> result;
  for (const auto& each : plan.featured)
    if (each.features->contrasted)
      result.push_back(each.place);
  return result;
}

std::vector<layered_logits> layered_logits_of(const step_plan& plan) {
  std::vector<layered_logits> result;
  for (const auto& each : plan.featured)
    if (each.features->layers && each.sampled_rows > 0)
      result.push_back({each.logit_row, each.sampled_rows, each.features->layers});
  return result;
}

} // namespace troupe
