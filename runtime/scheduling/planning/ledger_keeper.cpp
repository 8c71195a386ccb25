#include "runtime/scheduling/planning/ledger_keeper.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace troupe {

namespace {

/// Where several sequences of a request are in different states, the request is in the one that comes first here.
constexpr auto furthest = std::to_array<wait_cause>({wait_cause::decode, wait_cause::prefill, wait_cause::judge,
                                                     wait_cause::mask, wait_cause::turn, wait_cause::blocks,
                                                     wait_cause::preempted, wait_cause::queue});

std::size_t rank_of(wait_cause what) {
  return static_cast<std::size_t>(std::ranges::find(furthest, what) - furthest.begin());
}

/// The sequences that are decoded: sampled, with the row of one token and of its guesses. Rows of a prompt that are
/// sampled from are more.
class decoding {
public:
  explicit decoding(const step_plan& plan) {
    for (const auto& sample : plan.samples)
      rows_.emplace_back(sample.sequence, sample.parents ? any : 1 + sample.guesses);
    for (const auto& group : plan.groups)
      groups_.push_back(group.request);
    std::ranges::sort(rows_);
    std::ranges::sort(groups_);
  }

  bool is(sequence_id sequence, std::int32_t rows) const {
    const auto found = std::ranges::lower_bound(rows_, sequence, {}, &sampled::first);
    if (found == rows_.end() || found->first != sequence)
      return rows == 1 && std::ranges::binary_search(groups_, sequence.request);
    return found->second == any || found->second == rows;
  }

private:
  using sampled = std::pair<sequence_id, std::int32_t>;
  static constexpr std::int32_t any = -1;
  std::vector<sampled> rows_; // ascending, as the groups
  std::vector<std::uint64_t> groups_;
};

/// The share of a step's time that it takes for these rows more.
double share_of(const step_shape& more, const step_shape& all, const step_cost& cost) {
  if (more.rows <= 0 || all.rows <= 0)
    return 0;
  if (more.rows >= all.rows)
    return 1;
  const auto ms = cost.expected_ms(all);
  if (!(ms > 0))
    return more.rows / all.rows;
  auto rest = all;
  rest -= more;
  return std::clamp(1 - cost.expected_ms(rest) / ms, 0.0, 1.0);
}

} // namespace

void ledger_keeper::joined(const admission& its, time_point now) {
  if (!its.ledger)
    return;
  known_.insert_or_assign(its.request, known{its.ledger, its.came});
  its.ledger->enter(its.request, {its.came}, now);
}

void ledger_keeper::held(const admission& its, time_point now) {
  if (its.ledger)
    its.ledger->enter(its.request, {wait_cause::transfer}, now);
}

void ledger_keeper::stands(std::uint64_t request, std::optional<wait_cause> where, time_point now) {
  const auto found = known_.find(request);
  if (!where || found == known_.end())
    return;
  found->second.paused = *where == wait_cause::paused;
  enter(request, {*where}, now);
}

void ledger_keeper::granted(const block_grant& grant) {
  for (const auto& answer : grant.answers)
    granted_.push_back({answer.sequence, answer.first_position, answer.rows});
}

// Sorted by request. A sequence that got rows may have lost its place again before the plan was made.
std::vector<ledger_keeper::doing> ledger_keeper::doings(const step_plan& plan, std::span<const step_lane> running,
                                                        const standing_of& where) const {
  const decoding decodes(plan);
  std::vector<sequence_id> runs;
  runs.reserve(running.size());
  for (const auto& lane : running)
    runs.push_back(lane.sequence);
  std::ranges::sort(runs);
  std::vector<doing> all;
  all.reserve(granted_.size() + running.size());
  for (const auto& its : granted_) {
    if (const auto lost = its.rows > 0 && !std::ranges::binary_search(runs, its.sequence) ? where(its.sequence.request)
                                                                                          : std::nullopt) {
      all.push_back({its.sequence.request, *lost});
      continue;
    }
    const bool decoded = decodes.is(its.sequence, its.rows);
    const auto what = its.rows == 0 ? wait_cause::blocks : decoded ? wait_cause::decode : wait_cause::prefill;
    all.push_back(
      {its.sequence.request, what, what == wait_cause::prefill ? shape_of(its.position, its.rows, 0) : step_shape()});
  }
  for (const auto& lane : running)
    all.push_back({lane.sequence.request, lane.what});
  std::ranges::stable_sort(all, {}, &doing::request);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (kept == 0 || all[kept - 1].request != all[i].request) {
      all[kept++] = all[i];
      continue;
    }
    auto& its = all[kept - 1];
    its.prompt += all[i].prompt;
    if (rank_of(all[i].what) < rank_of(its.what))
      its.what = all[i].what;
  }
  all.resize(kept);
  return all;
}

void ledger_keeper::planned(const step_plan& plan, const step_cost& cost, std::span<const step_lane> running,
                            const standing_of& where, time_point now) {
  const auto all = doings(plan, running, where);
  granted_.clear();
  step_shape prompts;
  for (const auto& its : all)
    prompts += its.prompt;
  const auto whole = shape_of(plan);
  const auto to_others = share_of(prompts, whole, cost);
  step made{plan.step};
  made.entries.reserve(all.size() + active_.size());
  for (const auto& its : all) {
    auto others = to_others;
    if (its.prompt.rows > 0) {
      auto rest = prompts;
      rest -= its.prompt;
      others = share_of(rest, whole, cost);
    }
    const bool by_steps = its.what == wait_cause::decode || its.what == wait_cause::prefill ||
      its.what == wait_cause::turn;
    made.entries.push_back({its.request, {its.what, by_steps ? others : 0}});
  }
  std::vector<std::uint64_t> active;
  active.reserve(all.size());
  for (const auto& its : all)
    active.push_back(its.request);
  for (const auto request : std::exchange(active_, std::move(active)))
    if (!std::ranges::binary_search(active_, request))
      if (const auto stands = where(request))
        made.entries.push_back({request, {*stands}});
  in_flight_.push_back(std::move(made));
  if (in_flight_.size() == 1)
    begin(in_flight_.front(), now);
}

void ledger_keeper::finished(const step_result& result, time_point now) {
  const auto known = in_flight_.size();
  while (!in_flight_.empty() && in_flight_.front().number <= result.step)
    in_flight_.pop_front();
  if (!in_flight_.empty() && in_flight_.size() < known)
    begin(in_flight_.front(), now);
  for (const auto id : result.deferred) {
    const bool at_judge = std::ranges::find(result.at_judge, id) != result.at_judge.end();
    enter(id.request, {at_judge ? wait_cause::judge : wait_cause::mask}, now);
  }
}

void ledger_keeper::begin(const step& what, time_point now) {
  for (const auto& each : what.entries)
    enter(each.request, each.state, now);
}

void ledger_keeper::enter(std::uint64_t request, wait_state state, time_point now) {
  const auto found = known_.find(request);
  if (found == known_.end())
    return;
  if (found->second.paused)
    state = {wait_cause::paused};
  else if (state.what == wait_cause::queue)
    state.what = found->second.came;
  found->second.ledger->enter(request, state, now);
}

} // namespace troupe
