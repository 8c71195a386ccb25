#include "runtime/scheduling/planning/row_rules.hpp"

#include "runtime/scheduling/blocks/block_chain.hpp"

#include <algorithm>

namespace troupe {

std::int32_t row_rules::rotation_of(std::int32_t length) const {
  return troupe::rotation_of(length, limits_.rope_borders);
}

std::int32_t row_rules::end_of_rows(const scheduled_sequence& s) const {
  const auto passed = static_cast<std::size_t>(s.rotation);
  const bool last = passed >= limits_.rope_borders.size();
  return last ? s.last_row : std::min(s.last_row, limits_.rope_borders[passed]);
}

std::int32_t row_rules::wanted_in_turn(const scheduled_sequence& s) const {
  if (s.paused() || s.guesses > 0 || s.embedded() || crosses(s))
    return 0;
  const auto end = std::min(s.known(), s.last_row);
  if (s.grouped()) {
    const auto& g = table_.group_of(s);
    if (g.judging || table_.notices().forks_later(s.id.request))
      return 0;
    if (g.members.size() > 1)                                                   // the last rows are planned together
      return ready(g) ? 1 : std::max(end - 1 - s.planned, s.running() ? 0 : 1); // a row, too, to be admitted
  }
  if (s.planned < end)
    return end - s.planned;
  // One row ahead of the known tokens, while its token is being sampled.
  return s.planned == s.known() && s.samples_in_flight > 0 && !s.asked->follows && s.planned < end_of_rows(s) ? 1 : 0;
}

bool row_rules::admissible(const scheduled_sequence& s) const {
  // After a preemption, samples in flight must arrive first: they are part of what is recomputed.
  return s.samples_in_flight == 0 && !(s.grouped() && table_.group_of(s).judging) && wanted(s) > 0;
}

bool row_rules::ready(const sequence_group& g) const {
  return std::ranges::all_of(g.members, [this](sequence_id id) {
    const auto& s = table_.at(id);
    return s.running() && !s.paused() && s.planned == s.known() - 1 && !crosses(s);
  });
}

bool row_rules::unpredictable(const scheduled_sequence& s) const {
  if (s.grouped()) {
    const auto& g = table_.group_of(s);
    return g.judging && !g.deferred;
  }
  return s.guesses > 0 || (s.asked->follows && s.samples_in_flight > 0 && !s.deferred);
}

} // namespace troupe
