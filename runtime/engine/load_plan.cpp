#include "runtime/engine/load_plan.hpp"

#include "runtime/engine/memory_plan.hpp"
#include "runtime/support/byte_size.hpp"

#include <algorithm>
#include <chrono>

namespace troupe {

namespace {

/// What is decided for all replicas, within the memory that `memory` leaves.
struct decided {
  memory_plan memory;
  std::size_t kv_block = 0; // of the model alone
  int step_tokens = 0;
};

/// Weights are shared, what steps need is not.
memory_estimate in_replicas(memory_estimate need, int replicas) {
  need.activations *= static_cast<std::size_t>(replicas);
  need.scratch *= static_cast<std::size_t>(replicas);
  return need;
}

decided decide(const engine_options& options, opened_model& opened, memory_ledger::planning& memory, load_plan& plan) {
  const auto& device = *opened.device;
  const auto& config = opened.source.config;
  const auto capabilities = device.capabilities();
  const int context = opened.context(options);
  const auto need_of = [&](int rows) {
    return estimate_memory(
      *opened.source.tensors, config, opened.precision, device, *opened.backend,
      {.rows = rows, .sequences = options.max_sequences, .context = context, .dola = capabilities.dola});
  };
  decided result;
  const auto left = memory.left();
  result.step_tokens = options.step_tokens > 0
    ? options.step_tokens
    : plan_step_rows(
        device.most_step_tokens(options.max_sequences), options,
        [&](int rows) { return in_replicas(need_of(rows), options.replicas); }, left);
  auto need = need_of(result.step_tokens);
  result.kv_block = need.kv_block;
  plan.weight_bytes = need.weights;
  if (opened.draft) {
    opened.draft->prepare(options, device, *opened.backend, draft_rows(options), context);
    need = opened.draft->with(need);
  }
  if (opened.amateur) {
    opened.amateur->prepare(options, device, *opened.backend, result.step_tokens, context);
    need = opened.amateur->with(need);
  }
  const auto share = capabilities.own_memory ? cache_share::of_a_device : cache_share::of_a_machine;
  result.memory = plan_memory(options, in_replicas(need, options.replicas), config.max_context, left, share);
  if (const auto others = memory.promised(); others > 0)
    result.memory.line += ", beside " + to_size(others) + " that other models of this process were promised";
  for (const auto& part : result.memory.parts)
    plan.promised.push_back(memory.reserve(part.what + " of " + opened.info.id, part.bytes));
  return result;
}

} // namespace

std::vector<int> rope_borders(const model_config& config, const model_config* amateur, int max_context) {
  std::vector<int> borders;
  for (const auto* each : {&config, amateur})
    if (const int border = each ? rope_border(each->rope, max_context) : 0; border > 0)
      borders.push_back(border);
  std::ranges::sort(borders);
  return borders;
}

load_plan plan_load(const engine_options& options, opened_model& opened) {
  load_plan plan;
  const auto& device = *opened.device;
  const auto& config = opened.source.config;
  std::vector<std::shared_ptr<const troupe::device>> devices{opened.device};
  if (options.replicas > 1) {
    devices.clear();
    for (int i = 0; i < options.replicas; ++i)
      devices.push_back(device.part_of(options.replicas, i));
  }
  const auto [memory, kv_block, step_tokens] = [&] {
    auto planning = plan_memory_of(device);
    return decide(options, opened, planning, plan);
  }();
  plan.max_context = memory.max_context;
  plan.kv_cache_bytes = devices.size() * static_cast<std::size_t>(memory.blocks) * kv_block;
  plan.lines.push_back(opened.info.weights + " " + memory.line +
                       (opened.draft ? "; with the draft model " + opened.info.draft : "") +
                       (opened.amateur ? "; with the amateur model " + opened.amateur->name() : ""));
  if (config.rope.type == rope_type::dynamic)
    plan.lines.push_back("`rope_type` is dynamic: no more than the " + std::to_string(config.max_context) +
                         " tokens before scaling, as every further token would change the rotation of all others");

  replica_plan replica{.device = opened.device, .blocks = memory.blocks};
  if (options.swap_bytes > 0) {
    auto host = plan_host_memory();
    replica.host_blocks = plan_swap(options, kv_block, host.left());
    plan.promised.push_back(host.reserve("host block pool of " + opened.info.id, options.swap_bytes));
  }
  if (replica.host_blocks > 0)
    replica.swap = device.measure_moves(kv_shape_of(config, opened.precision, 8));
  replica.limits = {
    .step_tokens = step_tokens,
    .max_sequences = options.max_sequences,
    .max_queue = (options.max_queue + options.replicas - 1) / options.replicas,
    .measured_budget = options.step_tokens == 0,
    .step_target_ms = std::chrono::duration<double, std::milli>(options.itl_target).count(),
    .rope_borders = rope_borders(config, opened.amateur ? &opened.amateur->config() : nullptr, plan.max_context)};
  for (auto& own : devices) {
    plan.replicas.push_back(replica);
    plan.replicas.back().device = std::move(own);
  }
  return plan;
}

} // namespace troupe
