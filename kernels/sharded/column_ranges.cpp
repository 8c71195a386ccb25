#include "kernels/sharded/column_ranges.hpp"

#include <algorithm>

namespace troupe::kernels {

namespace {

stored_matrix rows_of(const stored_matrix& m, std::size_t first, std::size_t count) {
  return {m.data != nullptr ? m.row(first) : nullptr, m.format, count, m.cols};
}

} // namespace

column_range columns_of(std::size_t outputs, std::size_t rank, std::size_t ranks, std::size_t unit) {
  const std::size_t units = (outputs + unit - 1) / unit;
  const auto begin = [&](std::size_t r) {
    return std::min(outputs, (units / ranks * r + std::min(r, units % ranks)) * unit);
  };
  return {begin(rank), begin(rank + 1) - begin(rank)};
}

std::vector<stored_matrix> cut_stack(std::span<const stored_matrix> stacked, column_range range, bool gated) {
  std::vector<stored_matrix> cut;
  if (gated) {
    for (const auto& m : stacked)
      cut.push_back(rows_of(m, range.first, range.count));
    return cut;
  }
  std::size_t before = 0;
  for (const auto& m : stacked) {
    const auto first = std::clamp(range.first, before, before + m.rows);
    const auto end = std::clamp(range.first + range.count, before, before + m.rows);
    if (end > first)
      cut.push_back(rows_of(m, first - before, end - first));
    before += m.rows;
  }
  return cut;
}

std::size_t outputs_of(std::span<const stored_matrix> stacked, bool gated) {
  if (gated && (stacked.size() != 2 || stacked[0].rows != stacked[1].rows))
    throw std::invalid_argument("gate and up must have the same number of outputs");
  if (gated)
    return stacked[0].rows;
  std::size_t outputs = 0;
  for (const auto& m : stacked)
    outputs += m.rows;
  return outputs;
}

} // namespace troupe::kernels
