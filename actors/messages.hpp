// The protocol: the interface of every actor, and for every message its sender and its meaning.
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
// Scheduler, block manager, executors, sampler, guide compiler and drafter form a replica. They live and die together;
// requests outlive them.
//
// - A client submits by submit_atom or engine::submit (api/embed); either way spawn_request makes the request actor.
// - A request asks the engine for admission and receives an admit_reply: the scheduler to go to, or why there is none.
//   If it has a guide, the guide_compiler compiles it before the scheduler hears of the request.
//   When that scheduler dies, the request asks again; the engine ends the whole replica and starts it again, and
//   requests bring their transcripts to it, or to another one that runs.
// - Where a model has several replicas, the first admit_reply asks what the prompt is like; the request tells in a
//   route_query, the engine's router chooses a replica, and the second admit_reply names it. Schedulers report their
//   load to the engine. With one replica there is none of this.
// - Request numbers are those of an admission, so stale messages are recognised.
// - A request ends by ending its actor. All who hold state for it monitor it and release that state then.
// - The executor runs on a thread of its own. It holds a plan back until the step_tokens arrive that its placeholders
//   stand for. On an asynchronous device messages carry events instead of results, logits and tokens stay on the
//   device, and the device notifies the sampler when a sample is done.
// - Where a model's layers are divided among stages, there is an executor for each. The first receives plans and
//   tokens; each passes a plan on with the rows that it has computed (stage_work), and the last one sends logits. So
//   plans and moves of blocks run in the same order in every stage, and while one plan is in the second stage, the
//   first computes the next.
// - Where prefixes are kept on a disk, two kv_movers, which read and write files, belong to the replica. What is
//   committed is saved: the block manager lists it among a grant's moves, the executor fills images, a kv_mover writes
//   them. A scheduler holds a new request until what is missing of its prompt is read and adopted, or for as long as
//   computing it would take. All moves of blocks reach the executor by way of the scheduler, in the order in which the
//   block manager made them; a plan without rows is moves alone, and nothing follows from it.
// - Where replicas have roles, a request is admitted to one that prefills, with the one where it may go on. The two
//   block managers agree on what is missing there; what the first one commits travels in images, from executor to block
//   manager, chunk by chunk while later chunks are computed. Once all is adopted, and a token is sampled, the request
//   asks the engine, and goes on there as after a death: with its transcript, whose blocks an ordinary open finds.
//
//     kv_block_manager(P) ── offered ─▶ kv_block_manager(D)     executor(P) ── received ▶ kv_block_manager(D)
//              ◀───────── accepted ───────────┘                 kv_block_manager(D) ── arrived ──▶ scheduler(P)
//     scheduler(P) ── arrived ▶ request ── move ─▶ engine ── admit_reply{D} ──▶ request ── submit ──▶ scheduler(D)
//
//   Nobody waits for any of this: without it, the request stays where it is.
// - A step costs one message per hop, whatever the batch; only tokens to requests are sent one by one. Bulk data is
//   immutable and travels as shared_ptr<const T>, never copied.
// - What a client sends and receives (generation, event) is plain values. All messages are local.
// - Where answers of searches are valued by a reward model, a judge belongs to the engine, beside its replicas, and
//   is loaded before the model. The engine tells samplers who judges. A sampler sends the judge an order and holds the
//   group back until that is settled, as if its masks were late.
// - Each step leaves a record (step_record) for whoever watches the engine; while nobody does, none is made.
#pragma once

#include "actors/message_types.hpp"

#include <caf/typed_actor.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

// A message is a struct whose name says what happened, or an atom with what it is about.
struct replica_known; // actors/messages/introductions.hpp
struct request_joined;
struct scheduler_known;
struct judge_known;
struct answer_valued; // actors/messages/judging.hpp
struct answers_to_value;
struct judge_failed;
struct judge_ready;
struct order_settled;
struct order_unwanted;
struct guesses_verified; // actors/messages/sampling.hpp
struct late_tokens_sampled;
struct mask_ready;
struct sample_done;
struct token_sampled;
struct deadline_passed; // actors/messages/endings.hpp
struct deadline_set;
struct request_left;
struct request_paused;
struct load_failed; // actors/messages/loading.hpp
struct model_loaded;
struct guide_compiled; // actors/messages/guides.hpp
struct guide_ordered;
struct guide_settled;
struct drafts_wanted; // actors/messages/drafting.hpp
struct tokens_drafted;
struct blocks_missing; // actors/messages/disk.hpp
struct fetch_done;
struct images_filled;
struct images_written;
struct prefix_wanted;
struct blocks_offered; // actors/messages/roles.hpp
struct chain_arrived;
struct move_wanted;
struct offer_accepted;
struct blocks_read; // actors/messages/arrivals.hpp
struct blocks_received;
struct deadlines_due; // actors/messages/reminders.hpp
struct device_check_due;
struct fetch_overdue;
struct read_on;
struct restart_due;
struct save_on;
struct send_on;

struct stage_rows; // runtime/execution/step_runner.hpp

// clang-format off

// -- the client -------------------------------------------------------------------------------------------------------

/// Receives the events of its requests, each under the number given at submission: token_events, then a done_event or
/// an error.
using client_actor = caf::typed_actor<caf::reacts_to<event_atom, std::uint64_t, event_ptr>>;

// -- request: one per client request; owns its transcripts, the detokenisers, the deadline ----------------------------

using request_actor = caf::typed_actor<
  caf::reacts_to<admit_atom, admit_reply_ptr>,               // engine: the outcome of admit, or of move
  caf::reacts_to<chain_arrived>,                             // scheduler
  // scheduler: first rows planned; cached tokens, and when it was by the clock of actors, for this may be read late
  caf::reacts_to<started_atom, std::uint64_t, std::int32_t, caf::timespan>,
  caf::reacts_to<token_sampled>,                             // sampler
  caf::reacts_to<scores_atom, prompt_scores_ptr>,            // sampler: log-probabilities of prompt tokens
  caf::reacts_to<embedding_atom, prompt_embedding_ptr>,      // sampler: the embedding of its prompt
  caf::reacts_to<ended_atom, std::uint64_t, hypotheses_ptr>, // sampler: its group of sequences has ended
  caf::reacts_to<guesses_verified>,                          // sampler
  caf::reacts_to<failed_atom, std::uint64_t, error>,         // scheduler, sampler, guide_compiler: it cannot continue
  caf::reacts_to<guide_compiled>,                            // guide_compiler
  caf::reacts_to<pause_atom, bool>,                          // client: its reader is slow, or has caught up
  caf::reacts_to<cancel_atom>,                               // client, engine
  caf::reacts_to<deadline_passed>>;                          // engine
// Its actor ends once the client has received the last event.

// -- scheduler: decides which sequences run in the next step ----------------------------------------------------------

using scheduler_actor = caf::typed_actor<
  caf::reacts_to<submit_atom, admission_ptr, request_actor>,  // request: run this
  caf::reacts_to<finish_atom, sequence_id>,                   // request: a stop string ended this sequence
  caf::reacts_to<request_paused>,                             // request
  caf::reacts_to<request_left>,                               // request
  caf::reacts_to<chain_arrived>,                              // kv_block_manager of another replica
  caf::reacts_to<grant_atom, block_grant_ptr>,                // kv_block_manager: answers each block_request
  caf::reacts_to<result_atom, step_result_ptr>,               // sampler: the tokens of a step
  caf::reacts_to<late_tokens_sampled>,                        // sampler
  caf::reacts_to<tokens_drafted>,                             // drafter
  caf::reacts_to<watch_atom, bool>,                           // engine: whether to send it a record of each step
  caf::reacts_to<moves_atom, block_moves_ptr>,                // kv_block_manager: moves that belong to no grant
  caf::reacts_to<fetch_done>,                                 // kv_mover, kv_block_manager
  caf::reacts_to<fetch_overdue>,                              // itself
  caf::replies_to<stats_atom>::with<scheduler_counters>>;     // engine

// -- kv_mover: reads or writes the files of kept blocks ---------------------------------------------------------------

using kv_mover_actor = caf::typed_actor<
  caf::reacts_to<blocks_missing>,                                // kv_block_manager
  caf::reacts_to<images_filled>,                                 // executor
  caf::reacts_to<read_on>>;                                      // itself

// -- kv_block_manager: decides which sequence holds which block -------------------------------------------------------

// Parts of its interface, which another replica's knows.
using kv_sender_actor = caf::typed_actor<caf::reacts_to<offer_accepted>>; // kv_receiver

using kv_receiver_actor = caf::typed_actor<
  caf::reacts_to<blocks_offered>,                                  // kv_sender
  caf::reacts_to<blocks_received>>;                                // executor of another replica

using kv_block_manager_actor = caf::typed_actor<
  caf::reacts_to<blocks_atom, block_request_ptr, scheduler_actor>, // scheduler: block_grant follows
  caf::reacts_to<prefix_wanted>,                                   // scheduler
  caf::reacts_to<blocks_read>,                                     // kv_mover
  caf::reacts_to<blocks_received>,                                 // as of kv_receiver
  caf::reacts_to<replica_known>,                                   // engine
  caf::reacts_to<blocks_offered>,                                  // as of kv_receiver
  caf::reacts_to<offer_accepted>,                                  // as of kv_sender
  caf::reacts_to<send_on>,                                         // itself
  caf::reacts_to<images_written>,                                  // kv_mover
  caf::reacts_to<save_on>,                                         // itself
  caf::replies_to<look_atom>::with<std::string>,                   // engine: block_manager::map()
  caf::replies_to<flush_atom>::with<bool>,                         // engine, at its end: once all is written
  caf::replies_to<stats_atom>::with<block_counters>>;              // engine

// -- executor: weights, KV memory, compute threads of a stage; one forward pass per plan, in order --------------------

using executor_actor = caf::typed_actor<
  caf::reacts_to<work_atom, stage_work_ptr>,              // executor of the stage before: go on with this
  caf::reacts_to<plan_atom, step_plan_ptr>,               // scheduler: run this once its placeholders are known
  caf::reacts_to<tokens_atom, step_tokens_ptr>,           // sampler: the tokens of placeholders
  caf::reacts_to<scheduler_known>,                        // engine
  caf::reacts_to<replica_known>>;                         // engine

// -- judge: values answers of searches by a reward model, in an engine of its own -------------------------------

using judge_actor = caf::typed_actor<
  caf::reacts_to<answers_to_value>,                          // sampler
  caf::reacts_to<event_atom, std::uint64_t, event_ptr>,      // its engine's requests
  caf::reacts_to<order_unwanted>,                            // sampler
  caf::reacts_to<model_loaded>,                              // its engine's listener: the reward model
  caf::reacts_to<load_failed>>;                              // likewise

// -- sampler: logits to tokens ----------------------------------------------------------------------------------------

using sampler_actor = caf::typed_actor<
  caf::reacts_to<scheduler_known>,                           // engine
  caf::reacts_to<request_joined>,                            // scheduler
  caf::reacts_to<judge_known>,                               // engine
  caf::reacts_to<plan_atom, step_plan_ptr>,                  // scheduler: these guides will be followed in a step
  caf::reacts_to<logits_atom, step_logits_ptr, executor_actor>, // executor: sample, and send the tokens to that one
  caf::reacts_to<mask_ready>,                                // thread that makes masks
  caf::reacts_to<order_settled>,                             // judge
  caf::reacts_to<sample_done>,                               // device
  caf::reacts_to<device_check_due>>;                         // itself
// Sends tokens to the executor first, which may be waiting for them, then to the scheduler, then to each request.

// -- drafter: guesses of a draft model --------------------------------------------------------------------------------

/// A part of the scheduler's interface.
using draft_reply_actor = caf::typed_actor<caf::reacts_to<tokens_drafted>>;

using drafter_actor = caf::typed_actor<caf::reacts_to<drafts_wanted>>; // scheduler

// -- guide_compiler: compiles the guides of requests ------------------------------------------------------------------

using guide_compiler_actor = caf::typed_actor<
  // request: guide_compiled, or an error, follows by this number
  caf::reacts_to<compile_atom, generation_ptr, std::uint64_t, request_actor>,
  caf::reacts_to<guide_settled>>;                               // guide_worker

// -- guide_worker: one thread of the guide compiler -------------------------------------------------------------------

using guide_worker_actor = caf::typed_actor<caf::reacts_to<guide_ordered>>; // guide_compiler

// -- engine: supervisor of all above ----------------------------------------------------------------------------------

/// A step on its way through the stages.
struct stage_work {
  step_plan_ptr plan = {};
  std::shared_ptr<const stage_rows> rows = {}; // null: of a plan without rows
  std::vector<double> stage_ms = {};           // that the stages before have taken
  executor_actor first = {};                   // stage, which the sampler sends the tokens to
};

/// The engine's answer to admit.
struct admit_reply {
  loaded_model_ptr model = {};
  bool asks = false;              // for a route_query, to be sent with admit: there are several replicas
  scheduler_actor scheduler = {}; // null while no replica runs: another reply follows
  guide_compiler_actor guides = {}; // of the same replica
  int replica = 0;                // its number
  int moves_to = -1;              // where its blocks are to be sent meanwhile; -1: nowhere
  std::int32_t expected_cached = 0; // tokens of the prompt, there
  std::uint64_t number = 0;       // of the request, for this admission
  std::uint64_t arrival = 0;      // of the request, at this engine
  error why = {};                 // if model is null: refused
};

/// Receives a record of each step: until it says `unwatch`, or ends. What it does not take in time piles up.
using step_watcher_actor = caf::typed_actor<caf::reacts_to<record_atom, step_record_ptr>>;

using engine_actor = caf::typed_actor<
  caf::replies_to<submit_atom, std::uint64_t, generation_ptr, client_actor>::with<request_actor>, // any actor
  caf::reacts_to<admit_atom, request_actor>,                              // request: admit_reply follows
  caf::reacts_to<admit_atom, request_actor, route_query_ptr>,             // request, if asked: admit_reply follows
  caf::reacts_to<move_wanted>,                                            // request
  caf::reacts_to<load_atom, load_report_ptr>,                             // scheduler, beside other replicas
  caf::reacts_to<deadline_set>,                                           // request
  caf::reacts_to<deadlines_due>,                                          // itself
  caf::reacts_to<restart_due>,                                            // itself
  caf::reacts_to<model_loaded>,                                           // loader
  caf::reacts_to<load_failed>,                                            // loader
  caf::reacts_to<judge_ready>,                                            // judge
  caf::reacts_to<judge_failed>,                                           // judge
  caf::reacts_to<answer_valued>,                                          // judge
  caf::reacts_to<record_atom, step_record_ptr>,                           // scheduler: if watched, or with a remark
  caf::reacts_to<watch_atom, step_watcher_actor>,                         // any actor
  caf::reacts_to<unwatch_atom, step_watcher_actor>,                       // any actor
  caf::replies_to<look_atom>::with<engine_snapshot_ptr>,                  // any actor that watches
  caf::reacts_to<news_atom, std::string>,                                 // engine::submit, kv_mover: a warning
  caf::replies_to<stats_atom>::with<engine_stats>>;                       // any actor; an error while no replica runs

// clang-format on

} // namespace troupe
