#include "runtime/engine/loading/memory_plan.hpp"

#include "runtime/engine/loading/replica_roles.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/kv_blocks.hpp"
#include "runtime/support/text/byte_size.hpp"

#include <algorithm>
#include <limits>

namespace troupe {

namespace {

/// The default share of the KV cache in the memory that weights and steps leave.
double portion(cache_share share) { return share == cache_share::of_a_machine ? 0.5 : 0.8; }

/// More would hardly be found again. A single conversation has many places to which its next turn may go back.
constexpr std::size_t snapshots_per_sequence = 4, least_snapshots = 16;

} // namespace

void require_memory(const std::string& what, std::size_t needed, std::size_t available, const std::string& purpose) {
  if (needed > available)
    throw failure(errc::out_of_memory,
                  what + " needs " + to_size(needed) + purpose + ", but only " + to_size(available) + " are available");
}

int plan_step_rows(int most, const engine_options& options, const std::function<memory_estimate(int)>& need_of,
                   std::size_t available) {
  constexpr int enough = 1024;
  const auto fits = [&](int rows) {
    const auto need = need_of(rows);
    const auto left = available - std::min(available, need.weights);
    return need.steps() <= left / 8 && need.steps() + std::min(options.kv_cache_bytes, left) <= left;
  };
  int prompts = most - options.max_sequences;
  while (prompts > enough && !fits(prompts + options.max_sequences))
    prompts = std::max(enough, prompts / 2);
  return std::min(most, prompts + options.max_sequences);
}

memory_plan plan_memory(const engine_options& options, const memory_estimate& need, int model_context,
                        std::size_t available, cache_share share) {
  memory_plan plan;
  const int wanted = options.max_context > 0 ? std::min(options.max_context, model_context) : model_context;
  plan.max_context = wanted;
  const auto fixed = need.fixed();
  if (fixed >= available)
    throw failure(errc::out_of_memory,
                  "the weights need " + to_size(need.weights) + " and the activations " + to_size(need.steps()) +
                    ", but only " + to_size(available) + " of memory are available");
  const auto replicas = static_cast<std::size_t>(replica_count(options));
  const auto sequences = static_cast<std::size_t>(options.max_sequences);
  const auto states = replicas * sequences * need.sequence_state;
  if (states >= available - fixed)
    throw failure(errc::out_of_memory,
                  "the states of " + std::to_string(replicas * sequences) + " sequences need " + to_size(states) +
                    ", but beside weights and activations only " + to_size(available - fixed) +
                    " of memory are available: fewer sequences need less (--max-sequences)",
                  "max_sequences");
  const auto left = available - fixed - states;
  if (options.kv_cache_bytes > left)
    throw failure(errc::out_of_memory,
                  "a KV cache of " + to_size(options.kv_cache_bytes) + " was asked for, but beside " +
                    "the weights and what steps need only " + to_size(left) + " of memory are available",
                  "kv_cache");

  const auto one_sequence = blocks_for(static_cast<std::size_t>(plan.max_context));
  const auto useful = one_sequence *
    (options.cached_sequences > 0 ? static_cast<std::size_t>(options.cached_sequences) : sequences);
  const auto own = (options.kv_cache_bytes > 0 ? options.kv_cache_bytes
                                               : static_cast<std::size_t>(static_cast<double>(left) * portion(share))) /
    replicas; // of a replica
  std::size_t for_snapshots = 0;
  if (need.state > 0 && options.prefix_cache) { // a quarter, or as much as is left beside a cache of a given size
    const auto room = options.kv_cache_bytes > 0 ? std::min(own, (left - options.kv_cache_bytes) / replicas) : own;
    auto count = std::min(room / 4 / need.state, std::max(snapshots_per_sequence * sequences, least_snapshots));
    if (count == 0 && need.state <= room / 2)
      count = 1; // without any, no prefix is of use
    plan.snapshots = static_cast<std::int32_t>(count);
    for_snapshots = count * need.state;
  }
  const auto by_bytes = (options.kv_cache_bytes > 0 ? own : own - for_snapshots) / need.kv_block;
  auto blocks = options.kv_cache_bytes > 0 ? by_bytes : std::min(useful, by_bytes);
  blocks = std::min<std::size_t>(blocks, std::numeric_limits<std::int32_t>::max() / kernels::block_tokens);
  if (blocks < one_sequence) {
    const auto holds = blocks * kernels::block_tokens;
    const auto needs = "a sequence of " + std::to_string(plan.max_context) + " tokens needs " +
      to_size(one_sequence * need.kv_block) + " of KV cache, but ";
    const auto of_one = replicas > 1 ? ", the part of one of " + std::to_string(replicas) + " replicas" : std::string();
    if (options.kv_cache_bytes > 0 && (blocks == 0 || options.max_context > 0))
      throw failure(errc::out_of_memory,
                    needs + to_size(options.kv_cache_bytes) + " were asked for, which have room for " +
                      std::to_string(holds) + of_one,
                    "kv_cache");
    if (blocks == 0 || options.max_context > 0)
      throw failure(errc::out_of_memory,
                    needs + "there is room for " + std::to_string(holds) + " tokens in " +
                      to_size(blocks * need.kv_block) + of_one,
                    "max_context");
    plan.max_context = static_cast<int>(holds);
  }
  plan.blocks = static_cast<std::int32_t>(blocks);
  plan.parts = {{"weights", need.weights}, {"activations", need.steps()}};
  if (states > 0)
    plan.parts.push_back({"states", states + replicas * for_snapshots});
  plan.parts.push_back({"KV cache", replicas * blocks * need.kv_block});
  for (const auto& part : plan.parts)
    plan.line += (plan.line.empty() ? "" : ", ") + part.what + " " + to_size(part.bytes) +
      (part.what == "states"
         ? " (" + std::to_string(sequences) + " sequences, " + std::to_string(plan.snapshots) + " snapshots)"
         : "");
  plan.line += " (" + std::to_string(blocks * kernels::block_tokens) + " tokens" +
    (replicas > 1 ? " in each of " + std::to_string(replicas) + " replicas" : "") + "); up to " +
    std::to_string(plan.max_context) + " tokens per sequence";
  if (options.max_context > model_context)
    plan.line += ", the model's limit, although " + std::to_string(options.max_context) + " were asked for";
  if (plan.max_context < wanted)
    plan.line += ", less than the model's " + std::to_string(model_context) + " for lack of memory";
  return plan;
}

std::size_t room_beside_weights(const engine_options& options, const memory_estimate& need, int model_context,
                                std::size_t available) {
  const auto replicas = static_cast<std::size_t>(replica_count(options));
  const auto sequences = static_cast<std::size_t>(options.max_sequences);
  const auto states = replicas * sequences * need.sequence_state;
  if (options.kv_cache_bytes > 0)
    return states + options.kv_cache_bytes;
  const int context = options.max_context > 0 ? std::min(options.max_context, model_context) : model_context;
  const auto one = replicas * blocks_for(static_cast<std::size_t>(context)) * need.kv_block;
  const auto least = options.max_context > 0 ? 2 * one : 0; // that was asked for
  const auto cached = options.cached_sequences > 0 ? static_cast<std::size_t>(options.cached_sequences) : sequences;
  return states + std::max(least, std::min(2 * cached * one, available / 4));
}

std::int32_t plan_swap(const engine_options& options, std::size_t kv_block, std::size_t available) {
  if (options.swap_bytes == 0)
    return 0;
  if (!options.prefix_cache)
    refuse_field("swap", "keeps what the prefix cache evicts, but the prefix cache is off");
  if (options.swap_bytes > available)
    throw failure(errc::out_of_memory,
                  to_size(options.swap_bytes) + " of host memory are wanted for swapping, but only " +
                    to_size(available) + " are available",
                  "swap");
  if (options.swap_bytes < kv_block)
    refuse_field("swap",
                 "must hold at least one block of the KV cache, which takes " + to_size(kv_block) + ", not " +
                   to_size(options.swap_bytes));
  return static_cast<std::int32_t>(
    std::min<std::size_t>(options.swap_bytes / kv_block, std::numeric_limits<std::int32_t>::max()));
}

} // namespace troupe
