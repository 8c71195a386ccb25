// The protocol: the interface of every actor, and for every message its sender.
//
//   client ── submit ──▶ engine ◀───┐    kv_block_manager
//     ▲             spawns │      load_report ▲      │ block_grant
//     │        admit_reply ▼        │  block_request   ▼
//     └────── event ─── request ──────────▶ scheduler ◀────────────────────┐
//                          ▲    submit,         │ step_plan                │ step_result
//                          │    finish,         ▼                          │
//                          │    pause        executor ── step_logits ──▶ sampler
//                          │                 of each stage               │ │
//                          │                    ▲                        │ │
//                          │                    └────── step_tokens ─────┘ │
//                          └────────────────────── sampled_token ──────────┘
//
// All but client, engine and requests form a replica. They live and die together; requests outlive them.
// - A request asks the engine for admission and gets an admit_reply: the scheduler to go to, or why there is none. If
//   it has a constraint, that is compiled first. When that scheduler dies, the request asks again and brings
//   its transcript. Where there are several replicas, the first reply asks for a route_query, and the second names
//   one. Request numbers are those of an admission, so stale messages are recognised. A request at which replicas
//   seem to fail is tried alone, and tells how that ended (trial_ended).
// - A request ends by ending its actor. All who hold state for it monitor it and release that state then.
// - The executor holds a plan back until the tokens arrive that its placeholders stand for. Where layers are divided
//   among stages, each has an executor, which passes the plan on with the rows that it has computed; the last one
//   sends logits. On a GPU messages carry events instead of results, and the device says when a sample is done.
// - Blocks kept on a disk (kv_mover), sent to a replica of another role, swapped or copied are moves: the block
//   manager orders them, and they reach the executor by way of the scheduler, in that order. Nobody waits for a block
//   that is on its way: without it, the request stays where it is, or computes. README.md has the roles' picture.
// - Where a second model values answers, a judge belongs to the engine. A sampler sends it an order and holds the
//   group back until that is settled, as if its masks were late.
// - A step costs one message per hop, whatever the batch; only tokens to requests are sent one by one. Bulk data is
//   immutable and travels as shared_ptr<const T>. All messages are local.
#pragma once

#include "actors/message_types.hpp"

#include <caf/typed_actor.hpp>

#include <cstdint>
#include <string>

namespace troupe {

/// A message: a struct whose name says what happened (actors/messages/), or an atom with what it is about.
template <class... What>
using gets = caf::reacts_to<What...>;

// clang-format off

/// Receives events under the number given at submission: token_events, then a done_event or an error.
using client_actor = caf::typed_actor<gets<event_atom, std::uint64_t, event_ptr>>;

/// One per client request: its transcripts, the detokenisers, the deadline. Ends once the client has the last event.
using request_actor = caf::typed_actor<
  gets<admit_atom, admit_reply_ptr>, gets<deadline_passed>,     // engine: where it runs, or why not; too late
  gets<chain_arrived>,                                          // scheduler
  gets<started_atom, std::uint64_t, std::int32_t, caf::timespan>, // scheduler: first rows; cached tokens, and when
  gets<token_sampled>, gets<guesses_verified>,                  // sampler
  gets<scores_atom, prompt_scores_ptr>,                         // sampler: log-probabilities of prompt tokens
  gets<embedding_atom, prompt_embedding_ptr>,                   // sampler: the embedding of its prompt
  gets<ended_atom, std::uint64_t, hypotheses_ptr>,              // sampler: its group of sequences has ended
  gets<failed_atom, std::uint64_t, error>,                      // scheduler, sampler, constraint_compiler: it cannot go on
  gets<constraint_compiled>,                                    // constraint_compiler
  gets<finish_wanted>,                                          // client: the answer is long enough
  gets<pause_atom, bool>, gets<cancel_atom>>;                   // client: slow, or caught up; client, engine: the end

/// Decides which sequences run in the next step.
using scheduler_actor = caf::typed_actor<
  gets<submit_atom, admission_ptr, request_actor>,              // request: run this
  gets<finish_atom, sequence_id>,                               // request: a stop string ended this sequence
  gets<request_paused>, gets<request_left>,                     // request
  gets<grant_atom, block_grant_ptr>,                            // kv_block_manager: answers each block_request
  gets<moves_atom, block_moves_ptr>,                            // kv_block_manager: moves that belong to no grant
  gets<fetch_done>, gets<chain_arrived>,                        // kv_mover or kv_block_manager; that of another replica
  gets<result_atom, step_result_ptr>, gets<late_tokens_sampled>, // sampler: the tokens of a step
  gets<guesses_made>,                                           // guess_worker
  gets<watch_atom, bool>,                                       // engine: whether to send it a record of each step
  gets<fetch_overdue>,                                          // itself
  caf::replies_to<stats_atom>::with<scheduler_counters>>;       // engine

/// Reads or writes the files of kept blocks.
using kv_mover_actor = caf::typed_actor<
  gets<blocks_missing>, gets<images_filled>, gets<read_on>>;    // kv_block_manager; executor; itself

/// Parts of a kv_block_manager that another replica's knows: what it sends, and what it receives.
using kv_sender_actor = caf::typed_actor<gets<offer_accepted>>; // kv_receiver
using kv_receiver_actor = caf::typed_actor<gets<blocks_offered>, gets<blocks_received>>; // kv_sender; its executor

/// Decides which sequence holds which block.
using kv_block_manager_actor = caf::typed_actor<
  gets<blocks_atom, block_request_ptr, scheduler_actor>,        // scheduler: block_grant follows
  gets<prefix_wanted>,                                          // scheduler
  gets<blocks_read>, gets<images_written>,                      // kv_mover
  gets<blocks_offered>, gets<blocks_received>, gets<offer_accepted>, // of another replica, as above
  gets<replica_known>,                                          // engine
  gets<send_on>, gets<save_on>,                                 // itself
  caf::replies_to<look_atom>::with<std::string>,                // engine: block_manager::map()
  caf::replies_to<flush_atom>::with<bool>,                      // engine, at its end: once all is written
  caf::replies_to<stats_atom>::with<block_counters>>;           // engine

/// Weights, KV memory and compute threads of a stage; one forward pass per plan, in order.
using executor_actor = caf::typed_actor<
  gets<plan_atom, step_plan_ptr>,                               // scheduler: run this once its placeholders are known
  gets<work_atom, stage_work_ptr>,                              // executor of the stage before: go on with this
  gets<tokens_atom, step_tokens_ptr>,                           // sampler: the tokens of placeholders
  gets<scheduler_known>, gets<replica_known>>;                  // engine

/// Values answers by a second model, in an engine of its own.
using judge_actor = caf::typed_actor<
  gets<answers_to_value>, gets<order_unwanted>,                 // sampler
  gets<event_atom, std::uint64_t, event_ptr>,                   // its engine's requests
  gets<model_loaded>, gets<load_failed>>;                       // its engine's listener: the model

/// Logits to tokens. It sends tokens to the executor first, which may wait for them, then to scheduler and requests.
using sampler_actor = caf::typed_actor<
  gets<logits_atom, step_logits_ptr, executor_actor>,           // executor: sample, and send the tokens to that one
  gets<plan_atom, step_plan_ptr>,                               // scheduler: these constraints will be followed in a step
  gets<request_joined>,                                         // scheduler
  gets<scheduler_known>, gets<judge_known>,                     // engine
  gets<mask_ready>, gets<order_settled>, gets<sample_done>,     // thread that makes masks; judge; device
  gets<masks_overdue>, gets<device_check_due>>;                 // itself

/// Computes guesses, for a part of the scheduler's interface.
using guess_reply_actor = caf::typed_actor<gets<guesses_made>>;
using guess_worker_actor = caf::typed_actor<gets<guesses_wanted>>; // scheduler

/// Compiles the constraints of requests, each on a thread of a constraint_worker.
using constraint_compiler_actor = caf::typed_actor<
  gets<compile_atom, generation_ptr, std::uint64_t, request_actor>, // request: constraint_compiled, or an error
  gets<constraint_settled>>;                                    // constraint_worker
using constraint_worker_actor = caf::typed_actor<gets<constraint_ordered>>; // constraint_compiler

/// Receives a record of each step: until it says `unwatch`, or ends. What it does not take in time piles up.
using step_watcher_actor = caf::typed_actor<gets<record_atom, step_record_ptr>>;

/// Supervisor of all above.
using engine_actor = caf::typed_actor<
  caf::replies_to<submit_atom, std::uint64_t, generation_ptr, client_actor>::with<request_actor>, // any actor
  gets<watch_atom, step_watcher_actor>, gets<unwatch_atom, step_watcher_actor>, // any actor
  caf::replies_to<look_atom>::with<engine_snapshot_ptr>,        // any actor that watches
  caf::replies_to<stats_atom>::with<engine_stats>,              // any actor; an error while no replica runs
  gets<admission_wanted>, gets<trial_ended>, gets<move_wanted>, gets<deadline_set>, // request
  gets<load_atom, load_report_ptr>,                             // scheduler, beside other replicas
  gets<record_atom, step_record_ptr>,                           // scheduler: if watched, or with a remark
  gets<model_loaded>, gets<load_failed>,                        // loader
  gets<judge_ready>, gets<judge_failed>, gets<answer_valued>,   // judge
  gets<news_atom, std::string>,                                 // engine::submit, kv_mover: a warning
  gets<deadlines_due>, gets<restart_due>>;                      // itself

// clang-format on

} // namespace troupe
