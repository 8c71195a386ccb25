// Decides which sequences run in the next step: waiting and running queues, the step's token budget, preemption. The
// scheduler actor carries its block requests to the block manager and its plans to the executor. Single-threaded.
//
// A step takes running sequences first (one row per decoding sequence, then chunks of prompts under way), then waiting
// ones, first come first served within a priority (Sarathi-Serve, Agrawal et al. 2024: stall-free batching with chunked
// prefill). Up to `steps_ahead` plans may be in flight: a plan refers by placeholder to tokens that the plan before it
// will sample.
#pragma once

#include "runtime/scheduling/step.hpp"
#include "runtime/support/error.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <variant>
#include <vector>

namespace troupe {

struct scheduler_limits {
  std::int32_t step_tokens = 512;
  std::int32_t max_sequences = 64;
  std::int32_t max_queue = 1024; // waiting requests, beyond those for which a slot is free
  std::int32_t steps_ahead = 2;  // plans in flight at once
};

/// A sequence resumed after another scheduler has run it in part.
struct resumed_sequence {
  std::uint32_t index = 0;
  std::vector<token_id> emitted;
};

/// A validated request. `params->max_tokens` fits the context.
struct admission {
  std::uint64_t request = 0;
  token_list prompt;
  std::shared_ptr<const sampling_params> params;
  int priority = 0;
  std::uint64_t arrival = 0;             // first come, first served within a priority; ties by `request`
  bool again = false;                    // readmitted: the queue is never too full for it
  std::vector<resumed_sequence> resumed; // unfinished sequences of the n; empty: all n, from the prompt
};

struct scheduler_counters {
  std::uint64_t running = 0, waiting = 0, paused = 0; // sequences
  std::uint64_t steps = 0, prefill_rows = 0, decode_rows = 0, discarded_rows = 0;
  std::uint64_t prompt_tokens = 0, generated_tokens = 0, preemptions = 0;
  std::uint64_t drafts = 0, draft_tokens = 0, accepted_tokens = 0; // of speculation
};

class scheduler {
public:
  explicit scheduler(scheduler_limits limits);

  /// Queues a request. Returns an error if the queue is full or n sequences can never run together.
  std::optional<error> submit(admission a);

  /// Drops a request in any state. Unknown ids are ignored: the request may just have ended.
  void cancel(std::uint64_t request);

  /// Ends one sequence for a reason that the sampler cannot see (a stop string).
  void finish(sequence_id id);

  /// A paused request gets no rows and no place in the queue, and is the first to lose its blocks and slots when they
  /// run short. At most max_queue + max_sequences sequences may be paused; returns the requests dropped beyond that,
  /// those paused longest.
  std::vector<std::uint64_t> pause(std::uint64_t request, bool paused);

  /// Whether `begin_step` may be called: no block request is unanswered, and there is something to request or to plan.
  bool wants_step() const;

  /// The first block request of a step. Follow with `granted`.
  block_request begin_step();

  /// Continues the step with the block manager's answer. Returns another block request (something was refused, or
  /// budget is left), the plan, or nothing if the step has no rows.
  using next = std::variant<std::monostate, block_request, std::shared_ptr<const step_plan>>;
  next granted(const block_grant& grant);

  /// Appends the tokens that a step has sampled.
  void finished(const step_result& result);

  /// Requests whose first rows were planned since the last call, with the prompt tokens found in the prefix cache.
  struct started {
    std::uint64_t request;
    std::int32_t cached_tokens;
  };
  std::vector<started> collect_started();

  scheduler_counters counters() const;

private:
  struct sequence {
    sequence_id id;
    int priority = 0;
    std::uint64_t arrival = 0;
    std::shared_ptr<const sampling_params> params;
    token_list prompt;
    std::vector<token_id> tokens; // known ones: prompt and sampled
    std::int32_t planned = 0;     // positions computed or in flight
    std::int32_t committed = 0;   // tokens that the block manager may index
    std::int32_t last_row = 0;    // rows are planned for positions below this
    std::int32_t samples_in_flight = 0;
    std::int32_t slot = -1;                  // while running
    std::uint64_t paused_since = 0;          // number of the pause() that paused it; 0: not paused
    bool announced = false;                  // its request was told that it started
    bool sampler_knows = false;              // its sampling state was sent since its admission
    std::int32_t siblings = 0;               // to be forked when the prompt is computed (n > 1)
    std::vector<std::int32_t> sibling_slots; // of the siblings, while this one runs

    bool running() const { return slot >= 0; }
    bool paused() const { return paused_since != 0; }
    std::int32_t known() const { return static_cast<std::int32_t>(tokens.size()); }
  };
  using key = std::tuple<int, std::uint64_t, sequence_id>; // -priority, arrival, id: scheduling order

  using queue = std::map<key, sequence*>;

  sequence& add(sequence s);
  queue& queue_of(const sequence& s) { return s.running() ? running_ : s.paused() ? paused_ : waiting_; }
  static key order(const sequence& s) { return {-s.priority, s.arrival, s.id}; }
  sequence* find(sequence_id id);
  std::int32_t rows_wanted(const sequence& s) const;
  bool admissible(const sequence& s) const;
  bool can_plan() const;

  // Planning a step, in rounds of block requests and grants.
  void preempt_for_waiting(block_request& request);
  void demand_for_running(block_request& request);
  void demand_for_waiting(block_request& request);
  void demand(block_request& request, sequence& s, std::int32_t rows);
  void apply(const block_demand& asked, const block_answer& answer, const block_grant& grant);
  void handle_refusal(const block_demand& refused, block_request& next);
  void add_rows(sequence& s, const block_answer& answer, const block_grant& grant);
  void add_samples(sequence& s);
  void add_sample(sequence& s, std::int32_t logit_row);
  void break_deadlock(block_request& next);
  std::shared_ptr<const step_plan> finish_draft();

  void add_commit(block_request& request, sequence& s) const;
  void admit(sequence& s, std::int32_t cached);
  sequence* victim();
  void preempt(sequence& s, block_request& request);
  void leave(sequence& s, block_request& request);
  void end(sequence_id id);

  scheduler_limits limits_;
  std::map<sequence_id, sequence> sequences_;
  queue running_, waiting_, paused_;              // paused_: those that do not run
  std::map<std::uint64_t, std::uint64_t> pauses_; // paused_since -> request
  std::uint64_t last_pause_ = 0;
  std::size_t paused_count_ = 0; // sequences, running ones included
  std::vector<std::int32_t> free_slots_;
  std::vector<started> started_;

  block_request later_;            // commits, forks and releases for the next block request
  std::vector<sequence_id> ended_; // sequences that the next plan reports to the sampler
  std::vector<block_move> moves_;  // granted and not yet part of a plan

  // The draft: sequences with a demand in this step, and those that got rows.
  std::optional<step_plan> draft_;
  std::set<sequence_id> demanded_, granted_;
  std::vector<block_demand> demands_; // of the unanswered block request
  std::int32_t budget_ = 0;
  std::int32_t slots_promised_ = 0;
  bool awaiting_grant_ = false; // a block request is unanswered
  bool starved_ = false;        // the last admission was refused for lack of blocks
  bool stalled_ = false;        // the last step had no rows, and nothing has changed since it began

  std::uint64_t last_step_ = 0, last_sampling_step_ = 0;
  std::int32_t steps_in_flight_ = 0;
  scheduler_counters counters_;
};

} // namespace troupe
