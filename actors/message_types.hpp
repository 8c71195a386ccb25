// What messages are made of: pointers to what travels, and the atoms that messages begin with. messages.hpp, which
// includes this, says who sends what to whom.
#pragma once

#include "runtime/engine/engine_stats.hpp"
#include "runtime/engine/generation.hpp"

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/atom.hpp>

#include <memory>
#include <vector>

namespace troupe {

// Defined in messages.hpp:
struct admit_reply;
struct kv_fetch;
struct stage_work;

class constraint;       // runtime/techniques/constraint.hpp
struct block_image;     // runtime/scheduling/block_image.hpp
struct guess_reply;     // runtime/techniques/guess_request.hpp
struct guess_request;   // likewise
struct engine_snapshot; // runtime/engine/engine_snapshot.hpp
struct hypothesis;      // runtime/sampling/group_strategy.hpp
struct load_report;     // runtime/scheduling/cost/load_report.hpp
struct loaded_model;    // runtime/engine/loading/loaded_model.hpp
struct route_query;     // runtime/scheduling/routing/route_query.hpp
struct step_logits;     // runtime/execution/step_runner.hpp
struct step_record;     // runtime/scheduling/step_record.hpp
struct step_tokens;     // runtime/execution/step_runner.hpp

// Defined in runtime/scheduling/step.hpp:
struct block_arrival;
struct block_grant;
struct block_move;
struct block_request;
struct prompt_embedding;
struct prompt_scores;
struct step_plan;
struct step_result;

using stage_work_ptr = std::shared_ptr<const stage_work>;
using event_ptr = std::shared_ptr<const event>;
using generation_ptr = std::shared_ptr<const generation>;
using admission_ptr = std::shared_ptr<const admission>;
using block_request_ptr = std::shared_ptr<const block_request>;
using block_grant_ptr = std::shared_ptr<const block_grant>;
using step_plan_ptr = std::shared_ptr<const step_plan>;
using step_logits_ptr = std::shared_ptr<const step_logits>;
using step_tokens_ptr = std::shared_ptr<const step_tokens>;
using step_result_ptr = std::shared_ptr<const step_result>;
using step_record_ptr = std::shared_ptr<const step_record>;
using engine_snapshot_ptr = std::shared_ptr<const engine_snapshot>;
using hypotheses_ptr = std::shared_ptr<const std::vector<hypothesis>>;
using prompt_scores_ptr = std::shared_ptr<const prompt_scores>;
using prompt_embedding_ptr = std::shared_ptr<const prompt_embedding>;
using block_arrival_ptr = std::shared_ptr<const block_arrival>;
using block_moves_ptr = std::shared_ptr<const std::vector<block_move>>;
using block_images_ptr = std::shared_ptr<std::vector<std::shared_ptr<block_image>>>; // of its receiver
using kv_fetch_ptr = std::shared_ptr<const kv_fetch>;
using guess_request_ptr = std::shared_ptr<const guess_request>;
using guess_reply_ptr = std::shared_ptr<const guess_reply>;
using loaded_model_ptr = std::shared_ptr<const loaded_model>;
using admit_reply_ptr = std::shared_ptr<const admit_reply>;
using route_query_ptr = std::shared_ptr<const route_query>;
using load_report_ptr = std::shared_ptr<const load_report>;
using constraint_ptr = std::shared_ptr<const constraint>;

// Messages that are named by what happened, by the files of actors/messages that have them.
struct admission_wanted; // actors/messages/admission.hpp
struct trial_ended;
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
struct finish_wanted;
struct request_left;
struct request_paused;
struct load_failed; // actors/messages/loading.hpp
struct model_loaded;
struct constraint_compiled; // actors/messages/constraints.hpp
struct constraint_ordered;
struct constraint_settled;
struct guesses_wanted; // actors/messages/guessing.hpp
struct guesses_made;
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
struct masks_overdue;
struct read_on;
struct restart_due;
struct save_on;
struct send_on;

using submit_atom = caf::atom_constant<caf::atom("submit")>;
using event_atom = caf::atom_constant<caf::atom("event")>;
using admit_atom = caf::atom_constant<caf::atom("admit")>;
using cancel_atom = caf::atom_constant<caf::atom("cancel")>;
using finish_atom = caf::atom_constant<caf::atom("finish")>;
using pause_atom = caf::atom_constant<caf::atom("pause")>;
using started_atom = caf::atom_constant<caf::atom("started")>;
using scores_atom = caf::atom_constant<caf::atom("scores")>;
using embedding_atom = caf::atom_constant<caf::atom("embedding")>;
using ended_atom = caf::atom_constant<caf::atom("ended")>;
using failed_atom = caf::atom_constant<caf::atom("failed")>;
using compile_atom = caf::atom_constant<caf::atom("compile")>;
using blocks_atom = caf::atom_constant<caf::atom("blocks")>;
using grant_atom = caf::atom_constant<caf::atom("grant")>;
using plan_atom = caf::atom_constant<caf::atom("plan")>;
using work_atom = caf::atom_constant<caf::atom("work")>;
using logits_atom = caf::atom_constant<caf::atom("logits")>;
using tokens_atom = caf::atom_constant<caf::atom("tokens")>;
using result_atom = caf::atom_constant<caf::atom("result")>;
using stats_atom = caf::atom_constant<caf::atom("stats")>;
using watch_atom = caf::atom_constant<caf::atom("watch")>;
using unwatch_atom = caf::atom_constant<caf::atom("unwatch")>;
using record_atom = caf::atom_constant<caf::atom("record")>;
using look_atom = caf::atom_constant<caf::atom("look")>;
using news_atom = caf::atom_constant<caf::atom("news")>;
using load_atom = caf::atom_constant<caf::atom("load")>;
using moves_atom = caf::atom_constant<caf::atom("moves")>;
using flush_atom = caf::atom_constant<caf::atom("flush")>;

} // namespace troupe

// -- between an engine and its clients: plain values, which are shared as long as they stay in the process ------------

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::event_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::generation_ptr)

// -- local: never leaves the process ----------------------------------------------------------------------------------

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::sequence_id)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::sampled_token)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::error)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::scheduler_counters)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::block_counters)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::engine_stats)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::admission_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::block_request_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::block_grant_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::step_plan_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::stage_work_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::step_logits_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::step_tokens_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::step_result_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::step_record_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::engine_snapshot_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::hypotheses_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::prompt_scores_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::prompt_embedding_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::block_arrival_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::block_moves_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::guess_request_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::guess_reply_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::loaded_model_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::admit_reply_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::route_query_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::load_report_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::constraint_ptr)
