// The protocol: every actor's interface, every message, who sends it to whom and what the answer means.
//
//   client ── submit ──▶ engine          kv_block_manager
//     ▲                    │ spawns           ▲      │ block_grant
//     │                    ▼    block_request │      ▼
//     └────── event ─── request ──────────▶ scheduler ◀────────────────────┐
//                          ▲    submit,         │ step_plan                │ step_result
//                          │    finish,         ▼                          │
//                          │    pause        executor ── step_logits ──▶ sampler
//                          │                    ▲                        │ │
//                          │                    └────── step_tokens ─────┘ │
//                          └────────────────────── sampled_token ──────────┘
//
// The executor is detached: it computes, and keeps a plan back until it has the step_tokens that its placeholders stand for.
// On a device that works by itself nobody waits for results: logits and tokens stay there, messages carry events, and the
// sampler hears from the device when there is something to tell the scheduler and the requests. A request asks the engine
// for the way in; that it has ended, however, is what others see from its actor's end. Where the scheduler ends before it, it
// asks again: the engine has its company end as a whole and starts another, to which requests bring what they have. The number
// under which a request is known is another in each company: a message from the last one is told by it.
// One step is one message per hop, whatever the batch; only tokens to requests go one by one. Bulk data is immutable and
// travels as shared_ptr<const T>: nothing is copied. None of these messages leaves the process.
#pragma once

#include "runtime/engine/generation.hpp"
#include "runtime/execution/step_runner.hpp"
#include "runtime/scheduling/block_manager.hpp"
#include "runtime/scheduling/scheduler.hpp"

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/atom.hpp>
#include <caf/typed_actor.hpp>

#include <functional>
#include <memory>

namespace troupe {

struct welcome;
struct loaded_model; // runtime/loader.hpp: a model in memory, ready to be executed

/// What the executor lends to the sampler.
struct step_logits {
  std::shared_ptr<const step_plan> plan;
  step_output output;
};

using event_ptr = std::shared_ptr<const event>;
using generation_ptr = std::shared_ptr<const generation>;
using admission_ptr = std::shared_ptr<const admission>;
using block_request_ptr = std::shared_ptr<const block_request>;
using block_grant_ptr = std::shared_ptr<const block_grant>;
using step_plan_ptr = std::shared_ptr<const step_plan>;
using step_logits_ptr = std::shared_ptr<const step_logits>;
using step_tokens_ptr = std::shared_ptr<const step_tokens>;
using step_result_ptr = std::shared_ptr<const step_result>;
using loaded_model_ptr = std::shared_ptr<const loaded_model>;
using welcome_ptr = std::shared_ptr<const welcome>;

using submit_atom = caf::atom_constant<caf::atom("submit")>;
using admit_atom = caf::atom_constant<caf::atom("admit")>;
using attach_atom = caf::atom_constant<caf::atom("attach")>;
using cancel_atom = caf::atom_constant<caf::atom("cancel")>;
using finish_atom = caf::atom_constant<caf::atom("finish")>;
using pause_atom = caf::atom_constant<caf::atom("pause")>;
using started_atom = caf::atom_constant<caf::atom("started")>;
using timeout_atom = caf::atom_constant<caf::atom("timeout")>;
using sampled_atom = caf::atom_constant<caf::atom("sampled")>;
using check_atom = caf::atom_constant<caf::atom("check")>;
using stats_atom = caf::atom_constant<caf::atom("stats")>;
using loaded_atom = caf::atom_constant<caf::atom("loaded")>;

// clang-format off

// -- the client -------------------------------------------------------------------------------------------------------

/// Hears of one or more requests, by the number that it gave each: token_events, then one done_event or error.
using client_actor = caf::typed_actor<caf::reacts_to<std::uint64_t, event_ptr>>;

/// The same for whoever is no actor: called in order, never concurrently for one request; must not block. What it throws
/// ends the request: it is offered one more event then, the error.
using event_sink = std::function<void(event)>;

// -- request: one per client request; owns its transcripts, the detokenisers, the deadline -----------------------------

using request_actor = caf::typed_actor<
  caf::reacts_to<welcome_ptr>,                            // engine: this way
  caf::reacts_to<started_atom, std::uint64_t, std::int32_t>, // scheduler: the first rows are planned; prompt tokens cached
  caf::reacts_to<sequence_id, sampled_token>,             // sampler: the next token of one of its sequences
  caf::reacts_to<std::uint64_t, error>,                   // scheduler, sampler: it cannot go on
  caf::reacts_to<pause_atom, bool>,                       // client: its reader is slow, or has caught up
  caf::reacts_to<cancel_atom>,                            // client, engine
  caf::reacts_to<timeout_atom>>;                          // itself
// Ends when its client has had the last event. Whoever keeps something for it watches it and lets go then.

// -- scheduler: who runs in the next step -------------------------------------------------------------------------------

using scheduler_actor = caf::typed_actor<
  caf::reacts_to<submit_atom, admission_ptr, request_actor>,  // request: run this
  caf::reacts_to<finish_atom, sequence_id>,                   // request: a stop string ended this sequence
  caf::reacts_to<pause_atom, std::uint64_t, bool>,            // request
  caf::reacts_to<step_result_ptr>,                            // sampler: what a step has sampled
  caf::replies_to<stats_atom>::with<scheduler_counters>>;     // engine

// -- kv_block_manager: who has which block ------------------------------------------------------------------------------

using kv_block_manager_actor = caf::typed_actor<
  caf::replies_to<block_request_ptr>::with<block_grant_ptr>,  // scheduler
  caf::replies_to<stats_atom>::with<block_counters>>;         // engine

// -- executor: weights, KV memory, compute threads; one forward pass per plan, in their order ---------------------------

using executor_actor = caf::typed_actor<
  caf::reacts_to<step_plan_ptr>,                          // scheduler: run this when its placeholders are known
  caf::reacts_to<step_tokens_ptr>>;                       // sampler: they are

// -- sampler: logits to tokens --------------------------------------------------------------------------------------------

using sampler_actor = caf::typed_actor<
  caf::reacts_to<attach_atom, scheduler_actor>,              // engine, at the start: who books what was sampled
  caf::reacts_to<attach_atom, std::uint64_t, request_actor>, // scheduler: who hears of this request's tokens
  caf::reacts_to<step_logits_ptr, executor_actor>,           // executor: sample, then tell it, the scheduler, the requests
  caf::reacts_to<sampled_atom>,                                // the device: the oldest sample is done
  caf::reacts_to<check_atom>>;                               // itself: has the device failed?

// -- engine: supervisor of all above --------------------------------------------------------------------------------------

/// The way in for a request once a model is loaded, or the reason why there is none.
struct welcome {
  loaded_model_ptr model = {};
  scheduler_actor scheduler = {}; // null where the company is being started anew: another welcome follows
  std::uint64_t number = 0;       // of the request, for this scheduler and all who work with it
  std::uint64_t arrival = 0;      // of the request at this engine
  error why = {};                 // where model is null
};

using engine_actor = caf::typed_actor<
  caf::replies_to<submit_atom, std::uint64_t, generation_ptr, client_actor>::with<request_actor>, // any actor
  caf::reacts_to<admit_atom, request_actor>,                              // request: where do I go? welcome follows
  caf::reacts_to<loaded_atom, loaded_model_ptr>,                          // loader
  caf::reacts_to<loaded_atom, error>,                                     // loader
  caf::replies_to<stats_atom>::with<engine_stats>>;                       // any actor; an error while loading

// clang-format on

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::sequence_id)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::sampled_token)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::error)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::scheduler_counters)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::block_counters)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::engine_stats)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::event_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::generation_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::admission_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::block_request_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::block_grant_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::step_plan_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::step_logits_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::step_tokens_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::step_result_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::loaded_model_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::welcome_ptr)
