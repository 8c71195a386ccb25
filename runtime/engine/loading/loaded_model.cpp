#include "runtime/engine/loading/loaded_model.hpp"

#include "runtime/checkpoint/packed/weight_pager.hpp"
#include "runtime/engine/checked_generation.hpp"
#include "runtime/model/size_estimate.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace troupe {

namespace {

constexpr int mask_threads = 3; // for constraints; they sleep unless there are any

} // namespace

model_counters loaded_model::counted() const {
  model_counters sum{.softmax_sums = softmax->sums, .recomputed_sums = softmax->recomputed};
  std::set<const weight_pager*> pagers; // stages may share one
  for (const auto& stage : stages)
    if (const auto* pager = stage.weights ? stage.weights->pager.get() : nullptr; pager && pagers.insert(pager).second)
      sum.weight_bytes += pager->read_bytes();
  return sum;
}

generation_limits loaded_model::allows() const {
  return {.vocab_size = info.vocab_size,
          .max_context = info.max_context,
          .timeout = request_timeout,
          .ttft_timeout = ttft_timeout,
          .embeds = capabilities.hidden_states,
          .generates = info.generates,
          .techniques = {.layers = info.layers,
                         .hidden = info.takes_embeddings ? info.hidden : 0,
                         .tied = info.tied,
                         .looks_inside = capabilities.looks_inside,
                         .judges = info.judge != nullptr,
                         .values = &info.techniques}};
}

std::size_t loaded_model::room() const {
  std::size_t sum = 0;
  for (const auto& each : replicas)
    sum += static_cast<std::size_t>(each.limits.max_queue) + static_cast<std::size_t>(each.limits.max_sequences);
  return sum;
}

// What is on its way at a time: a few steps' worth, which takes a few milliseconds to copy.
std::optional<sent_elsewhere> replica_plan::sending() const {
  constexpr std::size_t most_bytes = 32 << 20;
  if (exchange.block_bytes == 0)
    return std::nullopt;
  const auto images = std::max<std::size_t>(most_bytes / exchange.block_bytes, 4);
  sent_elsewhere how{std::make_shared<const image_pool>(exchange.block_bytes, images), exchange.numerics};
  if (exchange.state_bytes > 0)
    how.states = std::make_shared<const image_pool>(exchange.state_bytes, most_sent_states);
  return how;
}

model_replica replica_of(std::shared_ptr<const loaded_model> model, std::size_t number) {
  auto plan = model->replicas.at(number);
  return {std::move(model), std::move(plan)};
}

runner_spec model_replica::runner(std::size_t stage) const {
  std::size_t before = 0, states_before = 0;
  for (std::size_t i = 0; i < stage; ++i) {
    const auto& config = model->stages[i].weights->config;
    before += kv_shape_of(config, model->stages[i].precision, 1).block_bytes();
    states_before += state_bytes_per_sequence(config);
  }
  const auto& own = plan.copy > 0 ? model->copies.at(plan.copy - 1) : model->stages.at(stage);
  return {.weights = own.weights,
          .precision = own.precision,
          .sizes = {.rows = plan.limits.step_tokens,
                    .sequences = plan.limits.max_sequences,
                    .context = model->info.max_context},
          .blocks = plan.blocks,
          .host_blocks = plan.host_blocks,
          .snapshots = plan.snapshots,
          .image_offset = before,
          .state_offset = states_before,
          .softmax = model->softmax};
}

sampler_spec model_replica::sampler() const {
  return {.eos_ids = model->info.defaults.stops,
          .vocab = model->info.vocab_size,
          .max_sequences = plan.limits.max_sequences,
          .host = {.threads = mask_threads}};
}

std::unique_ptr<step_runner> model_replica::make_runner(std::size_t stage) const {
  const auto spec = runner(stage);
  auto own = plan.stages.at(stage)->make_runner(spec);
  if (stage + 1 < plan.stages.size())
    return own;
  for (const auto& second : model->seconds) {
    auto other = plan.last().make_runner({.weights = second.weights,
                                          .precision = second.precision,
                                          .sizes = second.sizes,
                                          .blocks = plan.blocks,
                                          .host_blocks = plan.host_blocks,
                                          .image_offset = spec.image_offset + own->block_bytes()});
    own = second.of->run_beside(std::move(own), std::move(other), second.vocab);
  }
  return own;
}

} // namespace troupe
