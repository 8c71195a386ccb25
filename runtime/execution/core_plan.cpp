#include "runtime/execution/core_plan.hpp"

#include "runtime/support/error.hpp"

#include <algorithm>
#include <string>

namespace troupe {

core_plan::core_plan(int threads, const machine_cores& on, core_layout layout) : layout_(layout) {
  const int count = layout.groups(), cores = static_cast<int>(on.numbers.size());
  if (threads > 0 && threads < count)
    refuse_field("threads",
                 "must be at least " + std::to_string(count) +
                   ", one for each part of the model that computes by itself, not " + std::to_string(threads));
  const int all = threads > 0 ? threads : std::max(count, on.threads());
  for (int i = 0; i < count; ++i)
    groups_.push_back({.threads = all / count + (i < all % count ? 1 : 0)});
  if (count == 1 || all > cores)
    return;
  int begun = 0;
  for (auto& each : groups_) {
    const auto first = on.numbers.begin() + begun * cores / all;
    begun += each.threads;
    each.cores.assign(first, on.numbers.begin() + begun * cores / all);
  }
}

const core_group& core_plan::group(int replica, int stage, int rank) const {
  return groups_.at(static_cast<std::size_t>((replica * layout_.stages + stage) * layout_.ranks + rank));
}

} // namespace troupe
