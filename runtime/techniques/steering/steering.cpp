#include "runtime/techniques/steering/steering.hpp"

#include "kernels/ops.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <numeric>

namespace troupe {

namespace {

/// The rows of a step that share what they are steered by: one op for all of them.
struct steered_alike {
  const steering* by;
  std::vector<std::int32_t> rows;
};

std::vector<steered_alike> grouped_rows(std::span<const steered_rows> steered) {
  std::vector<steered_alike> groups;
  for (const auto& s : steered) {
    auto group = std::ranges::find(groups, s.by.get(), &steered_alike::by);
    if (group == groups.end())
      group = groups.insert(group, {s.by.get(), {}});
    const auto before = group->rows.size();
    group->rows.resize(before + as_size(s.rows));
    std::iota(group->rows.begin() + static_cast<std::ptrdiff_t>(before), group->rows.end(), s.first_row);
  }
  return groups;
}

} // namespace

layer_hook steer(kernels::backend& backend, std::span<const steered_rows> rows) {
  if (rows.empty())
    return {};
  return [&backend, groups = grouped_rows(rows)](int passed, const kernels::tensor& residual) {
    if (passed == 0)
      return;
    for (const auto& group : groups) {
      const auto& direction = group.by->layers[as_size(passed - 1)];
      if (direction.empty())
        continue;
      // One row that stands for all: the stride is 0. The op only reads it.
      const kernels::tensor repeated{const_cast<float*>(direction.data()), kernels::dtype::f32, group.rows.size(),
                                     direction.size(), 0};
      backend.add_rows(residual, repeated, 1, group.rows.data());
    }
  };
}

} // namespace troupe
