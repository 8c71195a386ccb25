// Decides which sequences run in the next step: waiting and running queues, the step's token budget, preemption. The
// scheduler actor carries its block requests to the block manager and its plans to the executor. Single-threaded. A
// facade: its parts are drawn in README.md.
//
// A step takes running sequences first (one row per decoding sequence, then chunks of prompts under way), then waiting
// ones (Sarathi-Serve, Agrawal et al. 2024: stall-free batching with chunked prefill). Within a priority, clients
// share: those who wait are taken in turn by client, prompts of several clients divide a step's rows, and a client that
// waits for its first slot takes one from whoever has more than an equal share. Up to `steps_ahead` plans may be in
// flight: a plan refers by placeholder to tokens that the plan before it will sample. What cannot be planned ahead,
// because its positions depend on what is accepted (guesses), on a constraint, which may force several tokens, or on the
// others of its group, is left out of the next step, or holds it back until it is known (ahead_policy). A sequence
// whose mask is late (deferred) holds nothing back; it has rows again once its token is known.
#pragma once

#include "runtime/scheduling/cost/load_report.hpp"
#include "runtime/scheduling/cost/step_budget.hpp"
#include "runtime/scheduling/cost/wait_forecast.hpp"
#include "runtime/scheduling/planning/result_booking.hpp"
#include "runtime/scheduling/planning/sequence_survey.hpp"
#include "runtime/scheduling/planning/step_planner.hpp"
#include "runtime/scheduling/request.hpp"
#include "runtime/scheduling/scheduler_counters.hpp"
#include "runtime/scheduling/scheduler_limits.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

class scheduler {
public:
  /// `guesses`: null for none.
  explicit scheduler(scheduler_limits limits, std::shared_ptr<guesser> guesses = nullptr);
  scheduler(const scheduler&) = delete; // parts refer to each other
  scheduler& operator=(const scheduler&) = delete;

  /// Queues a request. Returns an error if the queue is full or n sequences can never run together. If it is full, but
  /// another client has more in it, the last one of that client fails instead (see collect_failed).
  std::optional<error> submit(admission a);

  /// How long a request that comes now is expected to wait, by what is known of those ahead of it.
  wait_forecast forecast(const admission& a) const;

  /// Why a request that comes now is refused: it would wait for longer than any may, or could not meet a deadline of its
  /// own. `now` is what these are compared with.
  std::optional<error> too_late(const admission& a, admission::time_point now) const;
  /// Why one is refused that has waited for as long as any may.
  error waited_for_long() const;

  /// Drops a request in any state. Unknown ids are ignored: the request may just have ended.
  void cancel(std::uint64_t request) { table_.cancel(request); }

  /// Ends one sequence for a reason that the sampler cannot see (a stop string); of sequences that are judged together,
  /// all.
  void finish(sequence_id id);

  /// A paused request gets no rows and no place in the queue, and is the first to lose its blocks and slots when they
  /// run short. At most max_queue + max_sequences sequences may be paused; returns the requests dropped beyond that,
  /// those paused longest.
  std::vector<std::uint64_t> pause(std::uint64_t request, bool paused);

  /// Whether `begin_step` may be called: no block request is unanswered, and there is something to request or to plan.
  bool wants_step() { return planner_.wants_step(); }

  /// The first block request of a step. Follow with `granted`.
  block_request begin_step() { return planner_.begin_step(); }

  /// Continues the step with the block manager's answer. Returns another block request (something was refused, or
  /// budget is left), the plan, or nothing if the step has no rows.
  using next = step_planner::next;
  next granted(const block_grant& grant) { return planner_.granted(grant); }

  /// Granted moves that are not yet part of a plan, to be done ahead of the next one.
  std::vector<block_move> take_moves() { return planner_.take_moves(); }

  /// Whether any sequence or group of a step is constrained: its sampler should prepare.
  static bool wants_masks(const step_plan& plan);

  /// Appends the tokens that a step has sampled. `ms`: since the end of the step before it, or since it could begin;
  /// `computed_ms`: of these, what `observe` was told.
  void finished(const step_result& result, double ms = 0, double computed_ms = 0);

  /// Books a late result: tokens of sequences and groups that steps have deferred.
  void finished_late(const step_result& result) { booking_.book(result); }

  /// What to ask the guess_model before the next step is planned; `replied` once the guesser has its reply.
  std::optional<guess_request> collect_guess_request() { return planner_.ask_guess_model(); }

  /// What to ask it beside a step, once its plan was sent.
  std::optional<guess_request> collect_request_ahead() {
    return limits_.stages == 1 ? guesses_.ask_ahead() : std::nullopt;
  }
  void replied() { table_.changed(); }

  /// Learns what a step has cost. Returns a line for the log, mostly empty.
  std::string observe(const step_shape& step, double ms);

  /// What steps cost, as far as it was observed.
  const step_cost& cost() const { return cost_; }

  /// What a step of so many rows costs that all want logits, at the context of the sequences that last decoded.
  step_estimate estimate(int rows) const { return guesses_.estimate(rows); }

  /// Whether no sequence runs.
  bool idle() const { return table_.idle(); }

  /// Rows that a step may have now.
  std::int32_t step_rows() const { return budget_.rows(cost_); }

  /// Requests whose first rows were planned since the last call, with the prompt tokens found in the prefix cache.
  using started = started_request;
  std::vector<started> collect_started() { return planner_.take_started(); }

  /// Requests that have ended since the last call because they can never run, and why.
  std::vector<std::pair<std::uint64_t, error>> collect_failed() { return table_.notices().take_failed(); }

  scheduler_counters counters() const;

  /// Why each sequence has nothing to do, where it has nothing to do; at most `most`, those first that run.
  std::vector<step_lane> idle_lanes(std::size_t most) const { return survey_.idle_lanes(most); }

  /// Why those that run have nothing to do; and where the furthest sequence of a request stands.
  std::vector<step_lane> running_lanes() const { return survey_.running_lanes(); }
  std::optional<wait_cause> standing_of(std::uint64_t request) const { return survey_.standing_of(request); }

  /// For the router, but for blocks, who reports what, what has ended, and lengths, which few reports are asked for.
  load_report load() const;
  void add_lengths(load_report& to) const { survey_.add_lengths(to); }
  std::vector<ended_answer> take_ended() { return booking_.take_ended(); }

  /// How long answers become, as far as they have ended here.
  length_model& lengths() { return lengths_; }

private:
  void add_twin(scheduled_sequence s, sequence_group& g);
  std::optional<std::uint64_t> waiting_last_of_largest(const std::string& newcomer) const;
  std::vector<expected_work> ahead_of(const request& newcomer) const;

  scheduler_limits limits_;
  step_cost cost_;
  step_budget budget_;
  step_guesses guesses_;
  length_model lengths_;
  sequence_table table_;
  sequence_survey survey_{table_};
  step_planner planner_;
  result_booking booking_;
};

} // namespace troupe
