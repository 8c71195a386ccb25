// Decides which sequences run in the next step: waiting and running queues, the step's token budget, preemption. The
// scheduler actor carries its block requests to the block manager and its plans to the executor. Single-threaded.
//
// A step takes running sequences first (one row per decoding sequence, then chunks of prompts under way), then waiting
// ones (Sarathi-Serve, Agrawal et al. 2024: stall-free batching with chunked prefill). Within a priority, clients
// share: those who wait are taken in turn by client, prompts of several clients divide a step's rows, and a client that
// waits for its first slot takes one from whoever has more than an equal share. Up to `steps_ahead` plans may be in
// flight: a plan refers by placeholder to tokens that the plan before it will sample. What cannot be planned ahead,
// because its positions depend on what is accepted (guesses), on a guide, which may force several tokens, or on the
// others of its group, holds the next step back until it is known. A sequence whose mask is late (deferred) holds
// nothing back; it has rows again once its token is known.
#pragma once

#include "runtime/scheduling/fair_queue.hpp"
#include "runtime/scheduling/scheduler_counters.hpp"
#include "runtime/scheduling/step.hpp"
#include "runtime/scheduling/step_budget.hpp"
#include "runtime/speculation/proposer.hpp"
#include "runtime/support/error.hpp"

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

namespace troupe {

struct scheduler_limits {
  std::int32_t step_tokens = 512; // rows of a step
  std::int32_t max_sequences = 64;
  std::int32_t max_queue = 1024; // waiting requests, beyond those for which a slot is free
  std::int32_t steps_ahead = 2;  // plans in flight at once
  bool measured_budget = false;  // steps of fewer rows than step_tokens if those are efficient enough
  double step_target_ms = 0;     // that a step may take; 0: no target
  // Lengths of a sequence beyond which all its positions are rotated otherwise, so that it is computed again
  // (LongRoPE); ascending
  std::vector<std::int32_t> rope_borders = {};
};

/// A sequence resumed after another scheduler has run it in part.
struct resumed_sequence {
  std::uint32_t index = 0;
  std::vector<token_id> emitted;
  float mirostat_mu = 0; // after the last of them
};

/// A validated request. `params->max_tokens` fits the context.
struct admission {
  std::uint64_t request = 0;
  token_list prompt;
  std::shared_ptr<const sampling_params> params;
  std::string client = {}; // who asks; clients share slots and rows
  int priority = 0;
  std::uint64_t arrival = 0;  // first come, first served within a priority and client; ties by `request`
  bool again = false;         // readmitted: the queue is never too full for it
  token_list prediction = {}; // of the answer, for guesses; null: none
  std::shared_ptr<const guides::answer_guide> guide = {}; // that the answers follow; null: none
  std::vector<resumed_sequence> resumed; // unfinished sequences of the n; empty: all n, from the prompt
  pooling embed = pooling::none;         // of the prompt's hidden states, instead of samples
  row_features_ptr features = {};        // of all its rows
  token_list negative = {};              // the prompt of the twin, if params->paired()
};

class scheduler {
public:
  /// `guesses`: null for none.
  explicit scheduler(scheduler_limits limits, std::shared_ptr<proposer> guesses = nullptr);

  /// Queues a request. Returns an error if the queue is full or n sequences can never run together. If it is full, but
  /// another client has more in it, the last one of that client fails instead (see collect_failed).
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
  bool wants_step();

  /// The first block request of a step. Follow with `granted`.
  block_request begin_step();

  /// Continues the step with the block manager's answer. Returns another block request (something was refused, or
  /// budget is left), the plan, or nothing if the step has no rows.
  using next = std::variant<std::monostate, block_request, std::shared_ptr<const step_plan>>;
  next granted(const block_grant& grant);

  /// Whether any sequence or group of a step follows a guide: its sampler should prepare.
  static bool follows_guides(const step_plan& plan);

  /// Appends the tokens that a step has sampled. `ms`: since the end of the step before it, or since it could begin;
  /// `computed_ms`: of these, what `observe` was told.
  void finished(const step_result& result, double ms = 0, double computed_ms = 0);

  /// The same of a late result: of sequences and groups that steps have deferred.
  void finished_late(const step_result& result) { book(result); }

  /// What to ask the draft model before the next step is planned; `replied` once the proposer has its reply.
  std::optional<draft_request> collect_draft_request();
  void replied() { changed(); }

  /// Learns what a step has cost. Returns a line for the log, mostly empty.
  std::string observe(const step_shape& step, double ms);

  /// What steps cost, as far as it was observed.
  const step_cost& cost() const { return cost_; }

  /// Of a step of so many rows that all want logits, at the context of the sequences that last decoded.
  step_estimate estimate(int rows) const;

  /// Whether no sequence runs.
  bool idle() const { return running_.empty(); }

  /// Rows that a step may have now.
  std::int32_t step_rows() const { return step_budget_.rows(cost_); }

  /// Requests whose first rows were planned since the last call, with the prompt tokens found in the prefix cache.
  struct started {
    std::uint64_t request;
    std::int32_t cached_tokens;
  };
  std::vector<started> collect_started();

  /// Requests that have ended since the last call because they can never run, and why.
  std::vector<std::pair<std::uint64_t, error>> collect_failed();

  scheduler_counters counters() const;

private:
  static constexpr auto all = std::numeric_limits<std::int32_t>::max();

  struct sequence {
    sequence_id id;
    std::string client;
    int priority = 0;
    std::uint64_t arrival = 0;
    std::shared_ptr<const sampling_params> params;
    token_list prompt, prediction;
    std::vector<token_id> tokens;       // known ones: prompt and sampled
    float mirostat_mu = 0;              // after the last known token
    std::int32_t planned = 0;           // positions computed or in flight
    std::int32_t committed = 0;         // tokens that the block manager may index
    std::int32_t last_row = 0;          // rows are planned for positions below this
    std::int32_t samples_in_flight = 0; // steps that will sample it
    std::int32_t guesses = 0;           // in flight, in the rows behind the known tokens
    // Prompt tokens up to this position have their log-probabilities, or will; of embeddings, their hidden states.
    std::int32_t scored = all;
    pooling embed = pooling::none;                     // nothing is sampled
    std::int32_t slot = -1;                            // while running
    std::int32_t rotation = 0;                         // while running: number of borders that it was beyond
    std::uint64_t paused_since = 0;                    // number of the pause() that paused it; 0: not paused
    bool announced = false;                            // its request was told that it started
    bool sampler_knows = false;                        // its sampling state was sent since its admission
    std::shared_ptr<const guides::answer_guide> guide; // null: none
    bool deferred = false;                             // its sample is late
    row_features_ptr features;
    std::int32_t siblings = 0;               // to be forked when the prompt is computed (n > 1)
    std::vector<std::int32_t> sibling_slots; // of the siblings, while this one runs; those without one will wait

    prefix_salt salt() const { return features ? features->salt : 0; }
    bool running() const { return slot >= 0; }
    bool decodes() const { return planned >= known() - 1; }
    bool paused() const { return paused_since != 0; }
    bool grouped() const { return params->grouped(); }
    bool embeds() const { return embed != pooling::none; }
    /// Its embedding is made, or will be by what is in flight: it waits for its request to end.
    bool embedded() const { return embeds() && scored == all; }
    /// Loses its blocks and slots before all others.
    bool gives_way() const { return paused() || embedded(); }
    bool guesses_help() const { return !grouped() && !embeds(); }
    std::int32_t known() const { return static_cast<std::int32_t>(tokens.size()); }
    std::int32_t prompt_tokens() const { return static_cast<std::int32_t>(prompt->size()); }
    /// That it cannot start without.
    std::int32_t slots_needed() const { return grouped() ? 1 + siblings : 1; }
  };

  /// The sequences of a request that are judged together. They are preempted together, and their last rows planned
  /// together.
  struct group {
    std::vector<sequence_id> members; // in the strategy's order
    std::vector<std::int32_t> spare_slots;
    std::uint32_t next_index = 1;
    int losses = 0;        // preemptions since it was last judged
    bool judging = false;  // its rows are in flight
    bool deferred = false; // its outcome is late
    bool sampler_knows = false;
    int judged = 0; // times since it was admitted
  };
  using key = std::tuple<int, std::uint64_t, sequence_id>; // -priority, arrival, id: scheduling order

  using queue = std::map<key, sequence*>;

  sequence& add(sequence s);
  void add_twin(sequence s, token_list prompt);
  std::optional<std::uint64_t> waiting_last_of_largest(const std::string& newcomer) const;
  void start_guessing(const sequence& s);
  void enqueue(sequence& s);
  void dequeue(const sequence& s);
  static key order(const sequence& s) { return {-s.priority, s.arrival, s.id}; }
  static fair_queue::place place_of(const sequence& s) { return {s.priority, s.arrival, s.id}; }
  slots_by_client held_slots() const;
  std::int32_t slots_of(const sequence& s) const;
  std::int32_t equal_share() const;
  std::int32_t sibling_slots(const sequence& s) const;
  sequence* find(sequence_id id);
  std::int32_t rotation_of(std::int32_t length) const;
  std::int32_t next_border(const sequence& s) const;
  std::int32_t rows_wanted(const sequence& s) const;
  std::int32_t rows_allowed(const sequence& s, std::int32_t rows) const;
  static bool scoring(const sequence& s) { return s.scored < s.prompt_tokens() && !s.embeds(); }
  bool ready(const group& g) const;
  bool admissible(const sequence& s) const;
  bool can_plan();
  bool held_back();
  struct decoding_step {
    plain_step step;
    std::vector<decoding_sequence> sequences;
    bool in_flight = false; // tokens of some are not known
  };
  decoding_step decoding();
  void changed();

  // Planning a step, in rounds of block requests and grants.
  void preempt_for_waiting(block_request& request);
  sequence* first_waiting(const slots_by_client& held);
  sequence* fair_victim(const sequence& first, const slots_by_client& held);
  std::int32_t rows_left(const block_request& request) const;
  row_shares divide_rows(const block_request& request);
  void ask_for_guesses();
  void demand_rows(block_request& request);
  void demand_for_decoding(block_request& request);
  void demand_last_rows(block_request& request, const std::vector<sequence_id>& members);
  void demand_for_prompts(block_request& request, row_shares& shares);
  void demand_for_waiting(block_request& request, row_shares& shares);
  std::int32_t prompt_rows(const sequence& s, std::int32_t rows) const;
  void demand(block_request& request, sequence& s, std::int32_t rows);
  void apply(const block_demand& asked, const block_answer& answer, const block_grant& grant);
  void handle_refusal(const block_demand& refused, block_request& next);
  void add_rows(sequence& s, const block_answer& answer, const block_grant& grant);
  void add_scores(sequence& s, std::int32_t first_row, std::int32_t rows);
  void add_hidden_rows(sequence& s, std::int32_t first_row, std::int32_t rows);
  void add_samples(sequence& s, std::int32_t guesses);
  sample_demand& add_sample(sequence& s, std::int32_t logit_row);
  void add_prompt_of_group(sequence& s, group& g);
  std::vector<std::uint64_t> apply_groups(const block_grant& grant);
  void handle_group_refusal(std::uint64_t request, block_request& next);
  std::shared_ptr<const sampling_start> start_of(const sequence& s) const;
  void break_deadlock(block_request& next);
  std::shared_ptr<const step_plan> finish_draft();

  void add_commit(block_request& request, sequence& s) const;
  void admit(sequence& s, std::int32_t cached);
  bool any_granted(const group& g) const;
  sequence* victim();
  /// `fits`: it is preempted for others, not because its blocks could not be had.
  void preempt(sequence& s, block_request& request, bool fits = false);
  void preempt_group(std::uint64_t id, block_request& request, bool fits);
  void suspend(sequence& s, block_request& request);
  void suspend(group& g, block_request& request);
  void suspend_crossing(block_request& request);
  bool crosses(const sequence& s) const { return s.running() && rotation_of(s.known()) != s.rotation; }
  void reserve_slots(group& g);
  void drop(sequence& s, group& g);
  void book(const step_result& result);
  void defer(sequence_id id);
  void book(const group_outcome& outcome);
  void leave(sequence& s, block_request& request);
  void end(sequence_id id);

  scheduler_limits limits_;
  std::shared_ptr<proposer> proposer_;
  step_cost cost_;
  step_budget step_budget_;
  double context_ = 0; // positions of the sequences that decode
  int decoding_ = 0;   // these sequences
  std::map<sequence_id, sequence> sequences_;
  std::map<std::uint64_t, group> groups_; // by request
  queue running_, paused_;                // paused_: those that do not run
  fair_queue waiting_;
  std::map<std::uint64_t, std::uint64_t> pauses_; // paused_since -> request
  std::uint64_t last_pause_ = 0;
  std::size_t paused_count_ = 0; // sequences, running ones included
  std::vector<std::int32_t> free_slots_;
  std::vector<started> started_;
  std::vector<std::pair<std::uint64_t, error>> failed_;

  block_request later_;            // commits, forks and releases for the next block request
  std::vector<sequence_id> ended_; // sequences that the next plan reports to the sampler
  std::vector<block_move> moves_;  // granted and not yet part of a plan

  // The draft: sequences with a demand in this step, and those that got rows.
  std::optional<step_plan> draft_;
  std::set<sequence_id> demanded_, granted_, last_rows_; // last_rows_: demanded for groups, all or none
  std::vector<block_demand> demands_;                    // of the unanswered block request
  std::map<sequence_id, std::vector<token_id>> guesses_; // for the draft
  std::int32_t budget_ = 0;
  std::int32_t extra_logits_ = 0; // rows of logits left for guesses and scores
  std::int32_t slots_promised_ = 0;
  bool awaiting_grant_ = false;   // a block request is unanswered
  bool starved_ = false;          // the last admission was refused for lack of blocks
  std::optional<bool> held_back_; // as found since anything has changed
  bool stalled_ = false;          // the last step had no rows, and nothing has changed since it began

  std::uint64_t last_step_ = 0, last_sampling_step_ = 0;
  std::int32_t steps_in_flight_ = 0;
  struct guessed_step {
    plain_step plain;
    step_shape without, with; // guesses
  };
  std::deque<guessed_step> guessed_steps_; // in flight
  scheduler_counters counters_;
};

} // namespace troupe
