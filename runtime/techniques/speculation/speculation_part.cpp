#include "runtime/techniques/speculation/speculation_part.hpp"

#include "runtime/checkpoint/packed/weight_pager.hpp"
#include "runtime/engine/loading/memory_ledger.hpp"
#include "runtime/engine/loading/opened_model.hpp"
#include "runtime/execution/device.hpp"
#include "runtime/model/recurrent_config.hpp"
#include "runtime/techniques/speculation/draft_model.hpp"
#include "runtime/techniques/speculation/lookahead_window.hpp"
#include "runtime/techniques/speculation/mtp_runner.hpp"
#include "runtime/techniques/speculation/speculator.hpp"
#include "runtime/techniques/speculation/technique.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

constexpr int usual_most_guesses = 16;

/// Rows of a draft model's pass. More would make short sequences wait for the prompts of others, fewer would compute
/// prompts slowly.
int draft_rows(const engine_options& options) { return std::max(128, options.max_sequences); }

/// Its KV cache has as many blocks as the model's.
draft_spec spec_of(const model_replica& of, const loaded_second& draft) {
  return {
    .runner = {.weights = draft.weights, .precision = draft.precision, .sizes = draft.sizes, .blocks = of.plan.blocks},
    .sampler = {.eos_ids = of.model->info.defaults.stops,
                .vocab = draft.vocab,
                .max_sequences = of.plan.limits.max_sequences},
    .target_vocab = of.model->info.vocab_size};
}

draft_spec spec_of(const model_replica& of, const loaded_mtp& mtp) {
  auto sampled = of.sampler();
  sampled.host = {};
  const auto& stages = of.model->stages;
  return {
    .runner = {.weights = mtp.weights->layers,
               .precision = mtp.precision,
               .sizes = mtp.sizes,
               .blocks = of.plan.blocks},
    .sampler = std::move(sampled),
    .target_vocab = of.model->info.vocab_size,
    .mtp = std::make_shared<const mtp_spec>(mtp_spec{mtp.weights, stages.front().weights, stages.back().weights})};
}

/// `own`: null for the device of the model's last stage.
template <class Loaded>
auto beside(std::shared_ptr<const Loaded> what, std::shared_ptr<const device> own = nullptr) {
  return [what = std::move(what), own = std::move(own)](const model_replica& replica) -> std::unique_ptr<guess_model> {
    return std::make_unique<draft_model>(own ? *own : replica.plan.last(), spec_of(replica, *what));
  };
}

std::shared_ptr<const device> open_draft_device(const engine_options& options, const compute_options& own) {
  try {
    return open_device(own, options.open_gpu);
  } catch (const failure& f) {
    if (f.what_failed().param != "device")
      throw;
    throw failure(f.what_failed().code, f.what_failed().message, draft_device_flag); // where the name stands
  }
}

draft_place place_draft(const engine_options& options, const opened_model& of, bool drafts) {
  const auto threads = static_cast<int>(number_of(options.techniques, draft_threads_flag, 0));
  const auto name = text_of(options.techniques, draft_device_flag);
  draft_place place{.compute = options.compute};
  if (drafts && !of.copies.empty() &&
      (name.empty() || std::ranges::any_of(of.copies, [&](const auto& copy) { return copy.compute.device == name; }) ||
       of.first().compute.device == name))
    refuse_field(draft_device_flag, "must name another device than those of the replicas, which each have a GPU");
  if (threads == 0 && name.empty())
    return place;
  if (!drafts)
    refuse_field(name.empty() ? draft_threads_flag : draft_device_flag, "is for a draft model, and there is none");
  if (name.empty() && of.capabilities.own_memory)
    refuse_field(draft_threads_flag, "is for models on a CPU: on a GPU, both take turns, unless `draft_device` is cpu");
  auto& own = place.compute;
  own.device = name.empty() ? "cpu" : name;
  own.tensor_parallel = 1;
  own.unified_maximum.reset();
  own.weights = "auto"; // what is for one kind of device alone
  own.packed_cache.clear();
  if (threads > 0)
    own.threads = threads;
  place.own = open_draft_device(options, own);
  const auto& beside = *of.last().device;
  const bool on_gpu = place.own->capabilities().own_memory, one_memory = share_memory(*place.own, beside);
  if (threads > 0 && on_gpu)
    refuse_field(draft_threads_flag, "is for a draft model on a CPU, not on " + name);
  if (threads > 0 && one_memory && options.compute.threads == 0)
    refuse_field(draft_threads_flag, "needs `threads`, which says how many the model itself has");
  if (on_gpu && beside.capabilities().own_memory && options.compute.tensor_parallel > 1)
    refuse_field(draft_device_flag, "cannot be a GPU beside those that `tensor_parallel` divides a model among",
                 errc::unsupported);
  place.apart = threads > 0 || !one_memory;
  if (!place.apart && place.own->description() == beside.description())
    return {.compute = options.compute};
  if (!on_gpu) {
    own.weights = options.compute.weights;
    own.packed_cache = options.compute.packed_cache;
  }
  return place;
}

/// The options as far as they concern the draft model.
engine_options for_draft(engine_options options, const draft_place& place) {
  options.compute = place.compute;
  return options;
}

} // namespace

speculation_part::speculation_part(const engine_options& options, const opened_model& of, const log_sink& log)
  : draft_(open_second(text_of(options.techniques, draft_flag), &speculation_technique, draft_flag, of.source,
                       of.info.tokenizer.get())),
    place_(place_draft(options, of, draft_ != nullptr)),
    mtp_(open_mtp(options, of.source, of.capabilities, of.info.device, log)),
    recurrent_(static_cast<bool>(of.source.config.recurrent)) {}

std::string speculation_part::name() const {
  return draft_ ? "the draft model " + draft_->name() + (place_.own ? " on " + place_.own->description() : "")
                : std::string();
}

memory_estimate speculation_part::prepare(const engine_options& options, const opened_stage& last, int context) {
  if (draft_) {
    const auto own = place_.own ? place_.own->open() : nullptr;
    draft_->prepare(for_draft(options, place_), place_.own ? *place_.own : *last.device, own ? *own : *last.backend,
                    draft_rows(options), context);
    return draft_->with({});
  }
  return mtp_
    ? mtp_->prepare(*last.device, *last.backend, last.precision, draft_rows(options), options.max_sequences, context)
    : memory_estimate();
}

loaded_guesses speculation_part::load(const engine_options& options, const technique_values& internals,
                                      loaded_model& model, const part_loading& with) {
  loaded_guesses result;
  const auto lookahead = lookahead_shape_of(text_of(options.techniques, lookahead_flag)).value_or(lookahead_shape());
  speculation_settings settings{.mode = speculation_of(options.techniques),
                                .most_guesses = recurrent_ ? most_state_guesses
                                                           : std::max(usual_most_guesses, lookahead.rows()),
                                .lookahead = lookahead};
  settings.forced = static_cast<int>(number_of(options.techniques, draft_tokens_flag, 0));
  if (const auto* inside = internals.find<guessing_internals>(speculation_technique)) {
    settings.custom = inside->drafter;
    settings.branches = inside->branches;
  }
  if (draft_) {
    with.begin(draft_->name());
    settings.draft_model = true;
    settings.ahead = place_.apart;
    const auto own = place_.own ? place_.own->open() : nullptr;
    result.make_model = beside(std::make_shared<const loaded_second>(draft_->load(
                                 for_draft(options, place_), own ? *own : with.backend, with.show, with.log)),
                               place_.own);
    if (const auto* inside = internals.find<guessing_internals>(speculation_technique); inside && inside->around)
      result.make_model = [make = std::move(result.make_model), around = inside->around](const model_replica& replica) {
        return around(make(replica));
      };
  }
  if (const auto& pager = model.stages.back().weights->pager; mtp_ && pager && pager->streams()) {
    if (settings.mode == speculation::mtp)
      throw failure(errc::unsupported,
                    "`speculate` is mtp, but weights are read from a file step by step, so that no others can use the "
                    "head beside the model",
                    speculate_flag);
    with.log("layers of multi-token prediction do not guess, as weights are read from a file step by step");
  } else if (mtp_) {
    with.begin("layers of multi-token prediction");
    settings.mtp = true;
    result.make_model = beside(mtp_->load(with.backend, with.show));
  }
  model.info.techniques.set(
    speculation_technique,
    std::make_shared<const guessing_models>(guessing_models{draft_ ? draft_->name() : std::string(), settings.mtp}));
  result.make = [settings = std::move(settings)](step_cost_fn cost) {
    return std::make_shared<speculator>(settings, std::move(cost));
  };
  return result;
}

} // namespace troupe
