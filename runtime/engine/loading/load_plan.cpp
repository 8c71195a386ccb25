#include "runtime/engine/loading/load_plan.hpp"

#include "runtime/engine/loading/kept_prefixes.hpp"
#include "runtime/engine/loading/memory_plan.hpp"
#include "runtime/engine/loading/replica_roles.hpp"
#include "runtime/engine/loading/weight_loading.hpp"
#include "runtime/kv/kv_disk.hpp"
#include "runtime/model/size_estimate.hpp"
#include "runtime/support/kv_blocks.hpp"
#include "runtime/support/text/byte_size.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe {

namespace {

/// What is decided for all replicas, within the memory that `memory` leaves.
struct decided {
  memory_plan memory;
  std::size_t kv_block = 0; // of the model alone, in all memories
  int step_tokens = 0;
};

/// Weights are shared, what steps need is not.
memory_estimate in_replicas(memory_estimate need, int replicas) {
  need.activations *= static_cast<std::size_t>(replicas);
  need.scratch *= static_cast<std::size_t>(replicas);
  return need;
}

/// A memory that holds weights, K and V of some stages, and what is planned in it.
struct shared_memory {
  const device* of;
  memory_ledger::planning planning;
  cache_share share = cache_share::of_a_machine;
  std::vector<const opened_stage*> stages = {}; // none: of guesses alone
  int replicas = 1;                             // that compute in it
  bool is_copy = false;                         // of another, for a replica of its own
  bool has_last = false;                        // stage, beside which are the models of techniques
  bool has_guesses = false;
};

/// The host's first, then GPUs by their names, so that two loads never wait for each other.
std::vector<shared_memory> memories_of(const opened_model& opened, int replicas) {
  const auto* guessing = opened.guesses ? opened.guesses->own_device() : nullptr;
  std::vector<const device*> devices;
  for (const auto& stage : opened.stages)
    devices.push_back(stage.device.get());
  for (const auto& copy : opened.copies)
    devices.push_back(copy.device.get());
  if (guessing)
    devices.push_back(guessing);
  std::ranges::stable_sort(
    devices, {}, [](const device* d) { return d->capabilities().own_memory ? d->description() : std::string(); });
  std::vector<shared_memory> all;
  const auto at = [&](const device& d) {
    return std::ranges::find_if(all, [&](const shared_memory& m) { return share_memory(*m.of, d); });
  };
  for (const auto* each : devices)
    if (at(*each) == all.end())
      all.push_back({each, plan_memory_of(*each),
                     each->capabilities().own_memory ? cache_share::of_a_device : cache_share::of_a_machine});
  for (auto& each : all)
    each.replicas = replicas;
  for (const auto& stage : opened.stages)
    at(*stage.device)->stages.push_back(&stage);
  if (!opened.copies.empty())
    at(*opened.last().device)->replicas = 1;
  for (const auto& copy : opened.copies) {
    auto& its = *at(*copy.device);
    its.stages.push_back(&copy);
    its.replicas = 1;
    its.is_copy = true;
  }
  at(*opened.last().device)->has_last = true;
  at(guessing ? *guessing : *opened.last().device)->has_guesses = true;
  return all;
}

/// The options with a part of the KV cache.
engine_options for_part(engine_options options, std::size_t part_of_block, std::size_t block) {
  if (part_of_block < block)
    options.kv_cache_bytes = options.kv_cache_bytes / block * part_of_block;
  return options;
}

/// The options of the replicas that compute in one memory.
engine_options for_memory(engine_options options, const shared_memory& memory) {
  if (const int all = replica_count(options); memory.replicas != all) {
    options.kv_cache_bytes = options.kv_cache_bytes / static_cast<std::size_t>(all) *
      static_cast<std::size_t>(memory.replicas);
    options.replicas = memory.replicas;
    options.roles.clear();
  }
  return options;
}

/// Blocks and context as the scarcest memory allows. `needs`: of each memory.
std::vector<memory_plan> plan_memories(const engine_options& options, const std::vector<memory_estimate>& needs,
                                       const std::vector<shared_memory>& memories, int model_context) {
  std::size_t block = 0;
  for (std::size_t i = 0; i < needs.size(); ++i)
    block += memories[i].is_copy ? 0 : needs[i].kv_whole;
  const auto plan = [&](const engine_options& wanted) {
    std::vector<memory_plan> plans;
    for (std::size_t i = 0; i < needs.size(); ++i)
      plans.push_back(plan_memory(for_part(for_memory(wanted, memories[i]), needs[i].kv_block, block), needs[i],
                                  model_context, memories[i].planning.left(), memories[i].share));
    return plans;
  };
  auto plans = plan(options);
  const auto blocks = std::ranges::min(plans, {}, &memory_plan::blocks).blocks;
  const auto context = std::ranges::min(plans, {}, &memory_plan::max_context).max_context;
  if (std::ranges::all_of(plans, [&](const memory_plan& p) { return p.blocks == blocks && p.max_context == context; }))
    return plans;
  auto agreed = options;
  agreed.kv_cache_bytes = static_cast<std::size_t>(replica_count(options)) * static_cast<std::size_t>(blocks) * block;
  agreed.max_context = context;
  return plan(agreed);
}

/// Has packed matrices that do not fit stay in files. Returns whether there are any, and what is needed then.
bool map_weights(const engine_options& options, opened_model& opened, const std::vector<shared_memory>& memories,
                 std::vector<memory_estimate>& needs) {
  bool any = false;
  for (std::size_t i = 0; i < memories.size(); ++i) {
    std::size_t mappable = 0;
    std::vector<std::pair<opened_stage*, std::size_t>> stages;
    for (auto& stage : opened.stages)
      if (std::ranges::find(memories[i].stages, &stage) != memories[i].stages.end() &&
          not_mappable(opened.source, stage.compute, *stage.backend).empty()) {
        const auto bytes = place_packed(opened.source, stage.config, stage.precision, *stage.backend, all_weights).all;
        stages.emplace_back(&stage, bytes);
        mappable += bytes;
      }
    const auto left = memories[i].planning.left();
    const auto others = needs[i].fixed() - mappable +
      room_beside_weights(options, needs[i], opened.source.config.max_context, left) + left / 32;
    const auto budget = left - std::min(left, others);
    if (budget >= mappable)
      continue;
    for (const auto& [stage, bytes] : stages) {
      stage->weight_budget = static_cast<std::size_t>(static_cast<double>(budget) * static_cast<double>(bytes) /
                                                      static_cast<double>(mappable));
      const auto placed = place_packed(opened.source, stage->config, stage->precision, *stage->backend,
                                       stage->weight_budget);
      needs[i].weights -= bytes - placed.memory();
      any = true;
    }
  }
  return any;
}

decided decide(const engine_options& options, opened_model& opened, load_plan& plan) {
  const auto& config = opened.source.config;
  const int context = opened.context(options);
  auto memories = memories_of(opened, replica_count(options));
  const auto need_of = [&](const shared_memory& memory, int rows) {
    memory_estimate sum;
    for (const auto* stage : memory.stages)
      sum += stage->memory(*opened.source.tensors,
                           {.rows = rows,
                            .sequences = options.max_sequences,
                            .context = context,
                            .looks_inside = opened.capabilities.looks_inside});
    return sum;
  };
  decided result;
  result.step_tokens = options.step_tokens;
  if (options.step_tokens == 0)
    for (const auto& memory : memories)
      for (const auto* stage : memory.stages) {
        const auto rows = plan_step_rows(
          stage->device->most_step_tokens(options.max_sequences), for_memory(options, memory),
          [&](int rows) { return in_replicas(need_of(memory, rows), memory.replicas); }, memory.planning.left());
        result.step_tokens = result.step_tokens == 0 ? rows : std::min(result.step_tokens, rows);
      }
  if (config.encoder) // whose texts are computed whole
    result.step_tokens = std::max(result.step_tokens, context);
  std::vector<memory_estimate> needs;
  for (const auto& memory : memories) {
    auto need = need_of(memory, result.step_tokens);
    result.kv_block += memory.is_copy ? 0 : need.kv_whole;
    plan.weight_bytes += need.weights;
    if (opened.guesses && memory.has_guesses)
      need += opened.guesses->prepare(options, opened.last(), context);
    if (memory.has_last)
      for (auto& each : opened.seconds) {
        each.prepare(options, *opened.last().device, *opened.last().backend, result.step_tokens, context);
        need = each.with(need);
      }
    needs.push_back(in_replicas(need, memory.replicas));
  }
  const auto plan_all = [&] { return plan_memories(options, needs, memories, config.max_context); };
  std::vector<memory_plan> plans;
  try {
    plans = plan_all();
  } catch (const failure& f) {
    if (f.what_failed().code != errc::out_of_memory || options.must_fit ||
        !map_weights(options, opened, memories, needs))
      throw;
    plans = plan_all();
  }
  const auto first = static_cast<std::size_t>(
    std::ranges::find_if(memories, [](const shared_memory& m) { return !m.stages.empty(); }) - memories.begin());
  result.memory = plans[first];
  for (std::size_t i = 0; i < plans.size(); ++i) {
    auto& planning = memories[i].planning;
    if (i != first)
      result.memory.line += "; on " + memories[i].of->description() + ": " + plans[i].line;
    if (const auto others = planning.promised(); others > 0)
      result.memory.line += ", beside " + to_size(others) + " that other models of this process were promised";
    for (const auto& part : plans[i].parts)
      plan.promised.push_back(planning.reserve(part.what + " of " + opened.info.id, part.bytes));
  }
  return result;
}

/// What the stages of a replica compute on.
std::vector<std::shared_ptr<const device>> devices_of(const opened_model& opened, int replicas, int number) {
  const auto on_cores = std::ranges::count_if(
    opened.stages, [](const opened_stage& s) { return !s.device->capabilities().own_memory; });
  const core_layout layout{.replicas = replicas, .stages = std::max(1, static_cast<int>(on_cores))};
  std::vector<std::shared_ptr<const device>> devices;
  if (!opened.copies.empty())
    return {number == 0 ? opened.first().device : opened.copies.at(static_cast<std::size_t>(number) - 1).device};
  int stage = 0; // of those that share the cores
  for (const auto& each : opened.stages)
    if (each.device->capabilities().own_memory && replicas == 1)
      devices.push_back(each.device);
    else
      devices.push_back(layout.groups() > 1 ? each.device->part_of(layout, number, stage++) : each.device);
  return devices;
}

/// How fast a block's parts move, of all stages at the same time.
swap_rates measure_moves(const opened_model& opened) {
  swap_rates all;
  double out = 0, in = 0; // seconds
  for (const auto& stage : opened.stages) {
    const auto own = stage.device->measure_moves(kv_shape_of(stage.config, stage.precision, 8));
    all.block_bytes += own.block_bytes;
    out = std::max(out, static_cast<double>(own.block_bytes) / own.to_host);
    in = std::max(in, static_cast<double>(own.block_bytes) / own.to_device);
  }
  all.to_host = static_cast<double>(all.block_bytes) / out;
  all.to_device = static_cast<double>(all.block_bytes) / in;
  return all;
}

/// Blocks in host memory are of no use without snapshots. Where these are in host memory, too, they get a quarter of it.
void share_with_snapshots(replica_plan& replica, const opened_model& opened, std::size_t swap_bytes) {
  constexpr std::size_t most = 4096;
  std::size_t state = 0;
  for (const auto& stage : opened.stages) {
    if (stage.device->capabilities().own_memory)
      return;
    state += state_bytes_per_sequence(stage.config);
  }
  if (state == 0 || replica.host_blocks < 4)
    return;
  replica.host_blocks -= replica.host_blocks / 4;
  replica.snapshots += static_cast<std::int32_t>(std::min(swap_bytes / 4 / state, most));
}

std::vector<std::vector<std::shared_ptr<const device>>> devices_of_all(const engine_options& options,
                                                                       const opened_model& opened, int replicas) {
  std::vector<std::vector<std::shared_ptr<const device>>> devices;
  try {
    for (int i = 0; i < replicas; ++i)
      devices.push_back(devices_of(opened, replicas, i));
  } catch (const failure& f) {
    if (options.roles.empty())
      throw;
    throw failure(f.what_failed().code,
                  "`roles` asks for " + std::to_string(replicas) + " replicas, but " + f.what_failed().message,
                  "roles");
  }
  return devices;
}

std::size_t state_bytes_of(const opened_model& opened) {
  std::size_t bytes = 0;
  for (const auto& stage : opened.stages)
    bytes += state_bytes_per_sequence(stage.config);
  return bytes;
}

/// States on their way to and from files and other replicas, in host memory.
std::size_t travelling_states(const engine_options& options, const opened_model& opened, std::size_t replicas) {
  const auto images = (options.kv_disk.empty() ? 0 : 2 * kv_disk::state_images) +
    (options.roles.empty() ? 0 : most_sent_states);
  return replicas * images * state_bytes_of(opened);
}

/// Why prefixes of a model with recurrent layers are never found again.
log_line without_snapshots(const engine_options& options, const opened_model& opened) {
  auto line = "there is no room for a snapshot of the recurrent layers' states, of " + to_size(state_bytes_of(opened)) +
    ": every prompt is computed whole";
  if (!options.kv_disk.empty())
    line += ", `kv_disk` is not used";
  if (!options.roles.empty())
    line += ", and answers are computed where their prompts were";
  return warning(line);
}

block_exchange plan_exchange(const opened_model& opened, std::span<const std::int32_t> rope_borders) {
  const auto rates = measure_moves(opened);
  block_exchange exchange{rates.block_bytes, numerics_within(opened, rope_borders).hash()};
  for (const auto& each : opened.seconds)
    exchange.block_bytes += each.block_bytes();
  exchange.state_bytes = state_bytes_of(opened);
  const auto bytes = static_cast<double>(exchange.block_bytes);
  if (rates.to_host > 0 && rates.to_device > 0)
    exchange.copy_ms = 1e3 * bytes / rates.to_host + 1e3 * bytes / rates.to_device;
  return exchange;
}

} // namespace

std::vector<int> rope_borders(std::span<const model_config* const> models, int max_context) {
  std::vector<int> borders;
  for (const auto* each : models)
    if (const int border = rope_border(each->rope, max_context); border > 0)
      borders.push_back(border);
  std::ranges::sort(borders);
  return borders;
}

load_plan plan_load(const engine_options& options, opened_model& opened) {
  load_plan plan;
  const auto& config = opened.source.config;
  const auto roles = replica_roles(options);
  const auto devices = devices_of_all(options, opened, static_cast<int>(roles.size()));
  const auto [memory, kv_block, step_tokens] = decide(options, opened, plan);
  plan.max_context = memory.max_context;
  plan.kv_cache_bytes = devices.size() * static_cast<std::size_t>(memory.blocks) * kv_block;
  auto line = opened.info.weights + " " + memory.line;
  if (const auto name = opened.guesses ? opened.guesses->name() : std::string(); !name.empty())
    line += "; with " + name;
  std::vector<const model_config*> models{&config};
  for (const auto& each : opened.seconds) {
    line += "; with the " + std::string(each.of()->name) + " model " + each.name();
    models.push_back(&each.config());
  }
  plan.lines.emplace_back(std::move(line));
  if (options.max_context == 0 && plan.max_context < config.max_context)
    plan.lines.push_back(
      warning("a sequence can have up to " + std::to_string(plan.max_context) + " tokens, less than the model's " +
              std::to_string(config.max_context) + ", for lack of memory: so many need a KV cache of " +
              to_size(devices.size() * blocks_for(static_cast<std::size_t>(config.max_context)) * kv_block)));
  if (config.rope.type == rope_type::dynamic)
    plan.lines.emplace_back("`rope_type` is dynamic: no more than the " + std::to_string(config.max_context) +
                            " tokens before scaling, as every further token would change the rotation of all others");

  replica_plan replica{.blocks = memory.blocks};
  replica.snapshots = memory.snapshots;
  if (options.swap_bytes > 0) {
    auto host = plan_host_memory();
    replica.host_blocks = plan_swap(options, kv_block, host.left());
    plan.promised.push_back(host.reserve("host block pool of " + opened.info.id, options.swap_bytes));
    share_with_snapshots(replica, opened, options.swap_bytes);
  }
  if (replica.host_blocks > 0)
    replica.swap = measure_moves(opened);
  replica.limits = {.step_tokens = step_tokens,
                    .max_sequences = options.max_sequences,
                    .max_queue = options.max_queue,
                    .stages = static_cast<std::int32_t>(opened.stages.size()),
                    .microbatches = options.microbatches,
                    .measured_budget = options.step_tokens == 0,
                    .step_target_ms = std::chrono::duration<double, std::milli>(options.itl_target).count(),
                    .max_wait_ms = std::chrono::duration<double, std::milli>(options.max_wait).count(),
                    .rope_borders = rope_borders(models, plan.max_context),
                    .whole_prompts = config.encoder};
  if (config.recurrent) {
    replica.limits.recurrent = true;
    replica.limits.most_guesses = most_state_guesses;
    if (!replica.finds_prefixes() && options.prefix_cache)
      plan.lines.push_back(without_snapshots(options, opened));
    if (const auto bytes = travelling_states(options, opened, devices.size()); bytes > 0 && replica.finds_prefixes()) {
      auto host = plan_host_memory();
      require_memory("moving states of recurrent layers", bytes, host.left());
      plan.promised.push_back(host.reserve("states on their way of " + opened.info.id, bytes));
    }
  }
  opened.info.identity = identity_here(opened, replica.limits.rope_borders);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    auto& each = plan.replicas.emplace_back(replica);
    each.stages = devices[i];
    each.copy = opened.copies.empty() ? 0 : i;
    each.limits.trees = in_stages(devices[i]).trees;
    each.role = roles[i];
    const auto alike = static_cast<int>(std::ranges::count(roles, roles[i])); // which share what waits
    each.limits.max_queue = (options.max_queue + alike - 1) / alike;
    if (each.role != replica_role::any && each.finds_prefixes())
      each.exchange = plan_exchange(opened, each.limits.rope_borders);
  }
  return plan;
}

} // namespace troupe
