#include "runtime/scheduling/planning/step_recorder.hpp"

#include <doctest/doctest.h>

using namespace troupe;

namespace {

step_plan plan_of(std::uint64_t step) {
  step_plan plan;
  plan.step = step;
  return plan;
}

step_result result_of(std::uint64_t step) {
  step_result result;
  result.step = step;
  return result;
}

sequence_sample sample_of(std::uint64_t request, bool more) { return {{request, 0}, 0, {}, more}; }

} // namespace

TEST_CASE("a record has the rows, blocks and waits of its own step") {
  scheduler_counters counted;
  counted.decode_rows = 100, counted.prefill_rows = 50; // before the watch
  step_recorder recorder(counted);
  block_grant grant;
  grant.answers.resize(3);
  grant.answers[0].rows = 4;
  grant.acquired = 5, grant.evicted = 2;
  grant.moves = {{block_move::kind::copy, 0, 1}, {block_move::kind::swap_out, 1, 0}, {block_move::kind::swap_in, 0, 2}};
  recorder.granted(grant);
  grant = {};
  grant.acquired = 1;
  recorder.granted(grant);
  counted.decode_rows += 7, counted.prefill_rows += 16, counted.guessed_tokens += 4, counted.preemptions += 1;
  recorder.planned(plan_of(8), counted);
  counted.decode_rows += 2;
  recorder.planned(plan_of(9), counted); // ahead of the result of the first
  auto result = result_of(8);
  result.judged = {{{1, 0}, 4, 3, {}}};
  for (const bool more : {true, true, true, false})
    result.sampled.push_back(sample_of(1, more));
  for (const bool more : {true, true, false}) // a guide forces two tokens
    result.sampled.push_back(sample_of(2, more));
  result.deferred = {{3, 0}};
  counted.running = 3, counted.waiting = 2, counted.paused = 1;
  const auto first = recorder.finished(result, counted);
  REQUIRE(first.has_value());
  CHECK(first->step == 8);
  CHECK(first->rows.decode == 3);
  CHECK(first->rows.prefill == 16);
  CHECK(first->rows.guesses_kept == 3);
  CHECK(first->rows.guesses_lost == 1);
  CHECK(first->rows.forced == 2);
  CHECK(first->blocks.granted == 6);
  CHECK(first->blocks.evicted == 2);
  CHECK(first->blocks.copied == 1);
  CHECK(first->blocks.swapped_out == 1);
  CHECK(first->blocks.swapped_in == 1);
  CHECK(first->sequences.running == 3);
  CHECK(first->sequences.waiting == 2);
  CHECK(first->sequences.paused == 1);
  CHECK(first->waits.blocks == 2);
  CHECK(first->waits.preempted == 1);
  CHECK(first->waits.masks == 1);
  const auto second = recorder.finished(result_of(9), counted);
  REQUIRE(second.has_value());
  CHECK(second->rows.decode == 2);
  CHECK(second->rows.prefill + second->blocks.granted + second->waits.preempted == 0);
}

TEST_CASE("steps that were planned before the watch leave no record, and late guesses count with the next one") {
  step_recorder recorder({});
  CHECK_FALSE(recorder.finished(result_of(3), {}).has_value());
  recorder.planned(plan_of(5), {});
  CHECK_FALSE(recorder.finished(result_of(4), {}).has_value());
  auto late = result_of(0);
  late.judged = {{{1, 0}, 3, 1, {}}};
  late.sampled = {sample_of(1, true), sample_of(1, false)};
  recorder.finished_late(late);
  const auto record = recorder.finished(result_of(5), {});
  REQUIRE(record.has_value());
  CHECK(record->rows.guesses_kept == 1);
  CHECK(record->rows.guesses_lost == 2);
  CHECK(record->rows.forced == 0);
}

TEST_CASE("a record says what each sequence did, or for want of what it did nothing") {
  step_recorder recorder({});
  block_grant grant;
  grant.answers = {{.sequence = {1, 0}, .first_position = 40, .rows = 1},
                   {.sequence = {2, 0}, .first_position = 9, .rows = 4},
                   {.sequence = {3, 1}, .first_position = 0, .rows = 16},
                   {.sequence = {4, 0}},
                   {.sequence = {5, 0}},
                   {.sequence = {6, 0}, .first_position = 2, .rows = 1},
                   {.sequence = {7, 0}, .first_position = 5, .rows = 1}};
  grant.moves = {{block_move::kind::copy, 0, 7}, {block_move::kind::swap_in, 0, 2}, {block_move::kind::copy, 7, 9}};
  recorder.granted(grant);
  grant = {};
  grant.answers = {{.sequence = {5, 0}, .first_position = 0, .rows = 8}}; // refused at first
  recorder.granted(grant);
  auto plan = plan_of(3);
  plan.samples.resize(4);
  plan.samples[0].sequence = {1, 0};
  plan.samples[1].sequence = {2, 0}, plan.samples[1].guesses = 3;
  plan.samples[2].sequence = {3, 1}; // the end of its prompt
  plan.samples[3].sequence = {6, 0};
  recorder.planned(plan, {});
  auto result = result_of(3);
  result.deferred = {{6, 0}, {7, 0}};
  result.at_judge = {{7, 0}, {9, 0}}; // 9 was deferred in an earlier step
  const auto made = recorder.finished(result, {});
  REQUIRE(made.has_value());
  using kind = step_lane::kind;
  const auto is = [&](std::size_t at, sequence_id who, kind what, int rows, int position) {
    const auto& lane = made->lanes.at(at);
    return lane.sequence == who && lane.what == what && lane.rows == rows && lane.position == position;
  };
  REQUIRE(made->lanes.size() == 7);
  CHECK(is(0, {1, 0}, kind::decode, 1, 40));
  CHECK(is(1, {2, 0}, kind::decode, 4, 9));
  CHECK(is(2, {3, 1}, kind::prefill, 16, 0));
  CHECK(is(3, {4, 0}, kind::blocks, 0, 0));
  CHECK(is(4, {5, 0}, kind::prefill, 8, 0));
  CHECK(is(5, {6, 0}, kind::mask, 1, 2));
  CHECK(is(6, {7, 0}, kind::judge, 1, 5));
  CHECK(made->waits.masks == 1);
  CHECK(made->waits.judge == 2);
  CHECK(made->copies == std::vector<std::int32_t>{7, 9});
}

TEST_CASE("a record says why sequences without rows have none, and names each sequence once") {
  step_recorder recorder({});
  block_grant grant;
  grant.answers = {{.sequence = {1, 0}, .first_position = 40, .rows = 1}, {.sequence = {2, 0}}};
  recorder.granted(grant);
  using kind = step_lane::kind;
  const std::vector<step_lane> all{{{1, 0}, kind::turn, 0, 40},
                                   {{2, 0}, kind::queue},
                                   {{3, 0}, kind::queue},
                                   {{4, 0}, kind::preempted, 0, 9},
                                   {{5, 0}, kind::paused, 0, 7}};
  recorder.planned(plan_of(1), {}, all);
  const auto lanes = recorder.finished(result_of(1), {})->lanes;
  REQUIRE(lanes.size() == 5);
  CHECK(lanes[0].what == kind::prefill);
  CHECK(lanes[1].what == kind::blocks);
  CHECK(lanes[2].what == kind::queue);
  CHECK(lanes[3].what == kind::preempted);
  CHECK(lanes[3].position == 9);
  CHECK(lanes[4].what == kind::paused);
}

TEST_CASE("a record tells of 256 sequences at most") {
  step_recorder recorder({});
  block_grant grant;
  for (std::uint64_t i = 0; i < 400; ++i)
    grant.answers.push_back({.sequence = {i, 0}, .rows = 1});
  recorder.granted(grant);
  const std::vector<step_lane> all{{{1000, 0}, step_lane::kind::queue}};
  recorder.planned(plan_of(1), {}, all);
  CHECK(recorder.finished(result_of(1), {})->lanes.size() == most_step_lanes);
}
