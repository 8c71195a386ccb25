#include "runtime/scheduling/planning/step_recorder.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace troupe {

void step_recorder::granted(const block_grant& grant) {
  planning_.blocks.granted += grant.acquired;
  planning_.blocks.evicted += grant.evicted;
  for (const auto& move : grant.moves)
    switch (move.what) {
      case block_move::kind::copy:
        ++planning_.blocks.copied;
        planning_.copies.push_back(move.to);
        break;
      case block_move::kind::swap_out: ++planning_.blocks.swapped_out; break;
      case block_move::kind::swap_in: ++planning_.blocks.swapped_in; break;
      case block_move::kind::save:
      case block_move::kind::load:
      case block_move::kind::copy_state: break; // between steps
    }
  for (const auto& answer : grant.answers)
    add_lane(answer);
  planning_.waits.blocks += static_cast<std::uint64_t>(std::ranges::count(grant.answers, 0, &block_answer::rows));
}

step_lane* step_recorder::lane_of(sequence_id sequence) {
  const auto found = std::ranges::find(planning_.lanes, sequence, &step_lane::sequence);
  return found == planning_.lanes.end() ? nullptr : &*found;
}

// A sequence may be refused at first and get its room from a later grant of the same step.
void step_recorder::add_lane(const block_answer& answer) {
  auto* lane = lane_of(answer.sequence);
  if (!lane && planning_.lanes.size() >= most_step_lanes)
    return;
  if (!lane)
    lane = &planning_.lanes.emplace_back(step_lane{.sequence = answer.sequence, .position = answer.first_position});
  lane->rows += answer.rows;
  lane->what = lane->rows > 0 ? step_lane::kind::prefill : step_lane::kind::blocks;
}

void step_recorder::planned(const step_plan& plan, const scheduler_counters& now, std::span<const step_lane> all) {
  // The last rows of a prompt are sampled from, too, and are more than a token and its guesses.
  for (const auto& sample : plan.samples)
    if (auto* lane = lane_of(sample.sequence); lane && (lane->rows == 1 + sample.guesses || sample.parents))
      lane->what = step_lane::kind::decode;
  std::set<sequence_id> named;
  for (const auto& lane : planning_.lanes)
    named.insert(lane.sequence);
  for (const auto& lane : all)
    if (planning_.lanes.size() < most_step_lanes && !named.contains(lane.sequence))
      planning_.lanes.push_back(lane);
  auto record = std::exchange(planning_, {});
  record.step = plan.step;
  const auto guesses = now.guessed_tokens - before_.guessed_tokens;
  record.rows.prefill = now.prefill_rows - before_.prefill_rows;
  record.rows.decode = now.decode_rows - before_.decode_rows - guesses;
  record.waits.preempted = now.preemptions - before_.preemptions;
  before_ = now;
  in_flight_.push_back(std::move(record));
}

// What is taken behind the first token of a sequence was guessed right or forced.
void step_recorder::judge(const step_result& result, step_rows& rows) {
  std::uint64_t kept = 0;
  for (const auto& judged : result.judged) {
    kept += static_cast<std::uint64_t>(judged.accepted);
    rows.guesses_lost += static_cast<std::uint64_t>(judged.guesses - judged.accepted);
  }
  const auto more = static_cast<std::uint64_t>(std::ranges::count(result.sampled, true, &sequence_sample::more));
  rows.guesses_kept += kept;
  rows.forced += more - std::min(more, kept);
}

std::optional<step_record> step_recorder::finished(const step_result& result, const scheduler_counters& now) {
  while (!in_flight_.empty() && in_flight_.front().step < result.step)
    in_flight_.pop_front();
  if (in_flight_.empty() || in_flight_.front().step != result.step)
    return std::nullopt;
  auto record = std::move(in_flight_.front());
  in_flight_.pop_front();
  judge(result, record.rows);
  const auto late = std::exchange(late_, {});
  record.rows.guesses_kept += late.guesses_kept;
  record.rows.guesses_lost += late.guesses_lost;
  record.rows.forced += late.forced;
  record.sequences = {now.running, now.waiting, now.paused};
  const auto at_judge = [&](sequence_id id) { return std::ranges::count(result.at_judge, id) > 0; };
  record.waits.judge = result.at_judge.size();
  record.waits.masks = static_cast<std::uint64_t>(
    std::ranges::count_if(result.deferred, [&](sequence_id id) { return !at_judge(id); }));
  for (auto& lane : record.lanes)
    if (at_judge(lane.sequence))
      lane.what = step_lane::kind::judge;
    else if (std::ranges::count(result.deferred, lane.sequence) > 0)
      lane.what = step_lane::kind::mask;
  return record;
}

} // namespace troupe
