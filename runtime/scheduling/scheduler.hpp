// Who runs in the next step: waiting and running sequences, the step's token budget, preemption. Decides, does not act:
// the scheduler actor carries its block requests to the block manager and its plans to the executor. Single-threaded.
//
// A step takes first what runs (one row per decoding sequence, then chunks of prompts under way), then what waits, first
// come first served within a priority (Sarathi-Serve, Agrawal et al. 2024: stall-free batching with chunked prefill). Up to
// `steps_ahead` plans may be under way: a plan refers by placeholder to the tokens that the plan before it will sample.
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
  std::int32_t max_queue = 1024; // requests that wait, beyond those for which there is a free place
  std::int32_t steps_ahead = 2;  // plans under way at once
};

/// A sequence that goes on from where another scheduler had brought it.
struct resumed_sequence {
  std::uint32_t index = 0;
  std::vector<token_id> emitted;
};

/// A request as the scheduler knows it. `params->max_tokens` has been cut to what fits the context.
struct admission {
  std::uint64_t request = 0;
  token_list prompt;
  std::shared_ptr<const sampling_params> params;
  int priority = 0;
  std::uint64_t arrival = 0;             // first come, first served within a priority; equal ones by `request`
  bool again = false;                    // it was in before: the queue is never too full for it
  std::vector<resumed_sequence> resumed; // those of the n that have not ended; empty: all n, from the prompt
};

struct scheduler_counters {
  std::uint64_t running = 0, waiting = 0, paused = 0; // sequences
  std::uint64_t steps = 0, prefill_rows = 0, decode_rows = 0, discarded_rows = 0;
  std::uint64_t prompt_tokens = 0, generated_tokens = 0, preemptions = 0;
};

class scheduler {
public:
  explicit scheduler(scheduler_limits limits);

  /// Queues a request; an error where the queue is full or n sequences can never run together.
  std::optional<error> submit(admission a);

  /// Forgets a request, whatever it is doing. Unknown ids are ignored: it may just have ended.
  void cancel(std::uint64_t request);

  /// Ends one sequence, for a reason that the sampler does not know of (a stop string).
  void finish(sequence_id id);

  /// A paused request gets no rows; its blocks and slots are the first to be taken when there are too few, and it has no
  /// place in the queue. Of paused sequences there may be as many as run and wait at most: returns the requests that were
  /// forgotten where there are more, those paused for longest.
  std::vector<std::uint64_t> pause(std::uint64_t request, bool paused);

  /// True where `begin_step` may be called: no block request is unanswered, and there is something to ask or to plan.
  bool wants_step() const;

  /// What to ask of the block manager. Follow with `granted`.
  block_request begin_step();

  /// Takes the answer: another block request of the same step (something was refused, or budget is left), or the plan,
  /// or nothing where no rows came of it.
  using next = std::variant<std::monostate, block_request, std::shared_ptr<const step_plan>>;
  next granted(const block_grant& grant);

  /// Books what a step has sampled.
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
    std::vector<token_id> tokens; // known: prompt and what was sampled
    std::int32_t planned = 0;     // positions computed or under way
    std::int32_t committed = 0;   // tokens that the block manager may index
    std::int32_t last_row = 0;    // rows are planned for positions below this
    std::int32_t samples_in_flight = 0;
    std::int32_t slot = -1;                  // while running
    std::uint64_t paused_since = 0;          // number of the pause() that paused it; 0: it is not
    bool announced = false;                  // its request has heard that it started
    bool sampler_knows = false;              // its sampling state was sent since it was admitted
    std::int32_t siblings = 0;               // to be forked off when the prompt is computed (n > 1)
    std::vector<std::int32_t> sibling_slots; // theirs, while this one runs

    bool running() const { return slot >= 0; }
    bool paused() const { return paused_since != 0; }
    std::int32_t known() const { return static_cast<std::int32_t>(tokens.size()); }
  };
  using key = std::tuple<int, std::uint64_t, sequence_id>; // -priority, arrival, id: scheduling order

  using line = std::map<key, sequence*>;

  sequence& add(sequence s);
  line& line_of(const sequence& s) { return s.running() ? running_ : s.paused() ? resting_ : waiting_; }
  static key order(const sequence& s) { return {-s.priority, s.arrival, s.id}; }
  sequence* find(sequence_id id);
  std::int32_t rows_wanted(const sequence& s) const;
  bool admissible(const sequence& s) const;
  bool can_plan() const;

  // A step in the making, in rounds of question and answer.
  void make_way(block_request& request);
  void ask_for_running(block_request& request);
  void ask_for_waiting(block_request& request);
  void ask(block_request& request, sequence& s, std::int32_t rows);
  void take(const block_demand& asked, const block_answer& answer, const block_grant& grant);
  void make_room(const block_demand& refused, block_request& next);
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
  line running_, waiting_, resting_;              // resting: neither runs nor waits, for it is paused
  std::map<std::uint64_t, std::uint64_t> pauses_; // paused_since -> request
  std::uint64_t last_pause_ = 0;
  std::size_t paused_ = 0; // sequences, running ones included
  std::vector<std::int32_t> free_slots_;
  std::vector<started> started_;

  block_request later_;            // commits, forks and releases that the next block request carries
  std::vector<sequence_id> ended_; // that the next plan tells the sampler of
  std::vector<block_move> moves_;  // that the next plan carries: what the block manager counts on

  // The draft: which sequences were asked for in this step, which of them got rows.
  std::optional<step_plan> draft_;
  std::set<sequence_id> asked_, granted_;
  std::vector<block_demand> demands_; // of the unanswered block request
  std::int32_t budget_ = 0;
  std::int32_t slots_promised_ = 0;
  bool asking_ = false;  // a block request is unanswered
  bool starved_ = false; // the last admission was refused for want of blocks
  bool stalled_ = false; // the last step came to nothing, and nothing has happened since it began

  std::uint64_t last_step_ = 0, last_sampling_step_ = 0;
  std::int32_t steps_in_flight_ = 0;
  scheduler_counters counters_;
};

} // namespace troupe
