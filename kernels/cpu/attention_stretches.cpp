#include "kernels/cpu/attention_stretches.hpp"

#include <algorithm>

namespace troupe::kernels {

namespace {

/// `from`: the blocks before are equal, and have their stretches.
void add_from(std::span<const table_reader> readers, int first_query, int from, std::vector<attention_stretch>& to) {
  const auto& leader = readers.front();
  const auto goes_on = [&](const table_reader& r, const table_reader& with, int block) {
    return block < r.end && block < with.end && r.blocks[block] == with.blocks[block];
  };
  int last = from;
  while (last < leader.end && std::ranges::all_of(readers, [&](const auto& r) { return goes_on(r, leader, last); }))
    ++last;
  const bool alone = readers.size() == 1;
  if (alone || last > from) {
    int queries = 0;
    for (const auto& r : readers)
      queries += r.queries;
    to.push_back({leader.blocks, first_query, queries, from, last, alone});
  }
  for (std::size_t i = 0, count = 0; !alone && i < readers.size(); i += count) {
    const auto rest = readers.subspan(i);
    const auto other = std::ranges::find_if_not(rest.subspan(1),
                                                [&](const auto& r) { return goes_on(r, rest.front(), last); });
    count = static_cast<std::size_t>(other - rest.begin());
    add_from(rest.first(count), first_query, last, to);
    for (const auto& r : rest.first(count))
      first_query += r.queries;
  }
}

} // namespace

void add_stretches(std::span<const table_reader> readers, std::vector<attention_stretch>& to) {
  add_from(readers, 0, 0, to);
}

} // namespace troupe::kernels
