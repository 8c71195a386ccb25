#include "runtime/scheduling/planning/sequence_survey.hpp"

#include <algorithm>

namespace troupe {

void sequence_survey::count(scheduler_counters& into) const {
  for (auto& [_, s] : table_.all())
    ++(s.paused() ? into.paused : s.running() ? into.running : into.waiting);
}

std::vector<step_lane> sequence_survey::idle_lanes(std::size_t most) const {
  std::vector<step_lane> lanes;
  for (const bool running : {true, false})
    for (const auto& [id, s] : table_.all()) {
      if (s.running() != running || s.embedded())
        continue;
      if (lanes.size() >= most)
        return lanes;
      lanes.push_back({id, standing(s), 0, s.planned});
    }
  return lanes;
}

std::vector<step_lane> sequence_survey::running_lanes() const {
  std::vector<step_lane> lanes;
  lanes.reserve(static_cast<std::size_t>(table_.running_count()));
  for (const auto& s : table_.running())
    if (!s.embedded())
      lanes.push_back({s.id, standing(s), 0, s.planned});
  return lanes;
}

std::optional<wait_cause> sequence_survey::standing_of(std::uint64_t request) const {
  std::optional<wait_cause> found;
  const auto prefer = {wait_cause::judge,     wait_cause::mask,  wait_cause::turn,
                       wait_cause::preempted, wait_cause::queue, wait_cause::paused};
  const auto rank = [&](wait_cause what) { return std::ranges::find(prefer, what) - prefer.begin(); };
  for (auto at = table_.all().lower_bound({request, 0}); at != table_.all().end() && at->first.request == request; ++at)
    if (!at->second.embedded())
      if (const auto its = standing(at->second); !found || rank(its) < rank(*found))
        found = its;
  return found;
}

wait_cause sequence_survey::standing(const scheduled_sequence& s) const {
  const auto* group = table_.find_group(s.id.request);
  const bool late = group ? group->deferred : s.deferred;
  return s.paused() ? wait_cause::paused
    : late          ? (group && group->at_judge ? wait_cause::judge : wait_cause::mask)
    : s.running()   ? wait_cause::turn
    : s.announced   ? wait_cause::preempted
                    : wait_cause::queue;
}

void sequence_survey::add_load(load_report& to) const {
  for (const auto& [_, s] : table_.all()) {
    if (s.gives_way())
      continue;
    const auto with_slots = static_cast<std::int32_t>(s.sibling_slots.size());
    to.running += (s.running() ? 1 : 0) + with_slots;
    to.waiting += (s.running() ? 0 : 1) + s.siblings - with_slots;
    if (s.running() && s.decodes()) {
      to.decodes += shape_of(s.known() - 1, 1, 1);
      continue;
    }
    const auto done = s.running() ? s.planned : std::min(s.expected_cached, s.known() - 1);
    to.prompts += shape_of(done, s.known() - done, 1);
  }
  to.free_slots = table_.free_slots();
}

void sequence_survey::add_lengths(load_report& to) const {
  for (const auto& s : table_.running())
    if (s.expected && !s.gives_way()) {
      to.left.push_back(s.left());
      to.growth += s.expected->length.quantile_left(0.8, s.answered());
    }
  std::ranges::sort(to.left);
  to.left.resize(std::min(to.left.size(), load_report::most_left));
}

} // namespace troupe
