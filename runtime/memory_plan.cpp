#include "runtime/memory_plan.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>

namespace troupe {

namespace {

// Of what is left after the weights, the share that the KV cache may take by default: the rest is for prompts, sockets,
// the page cache and whoever else lives on this machine.
constexpr double default_share = 0.8;

constexpr auto unknown = std::numeric_limits<std::size_t>::max();

std::size_t number_in(const char* file) {
  std::size_t n = 0;
  std::ifstream in(file);
  return in >> n ? n : unknown;
}

/// The number behind `key` in a file of lines "key number [unit]".
std::size_t number_in(const char* file, const std::string& key) {
  std::ifstream in(file);
  std::string name, rest;
  for (std::size_t n = 0; in >> name >> n; std::getline(in, rest))
    if (name == key)
      return n;
  return unknown;
}

} // namespace

std::size_t available_memory() {
  const auto kib = number_in("/proc/meminfo", "MemAvailable:");
  auto available = kib == unknown ? unknown : kib * 1024;
  const auto limit = number_in("/sys/fs/cgroup/memory.max"), used = number_in("/sys/fs/cgroup/memory.current");
  if (limit != unknown && used != unknown) {
    // What is "used" counts the page cache, with the checkpoint that was just read: the kernel gives that back when asked.
    const auto cache = number_in("/sys/fs/cgroup/memory.stat", "inactive_file");
    const auto taken = cache == unknown ? used : used - std::min(used, cache);
    available = std::min(available, limit > taken ? limit - taken : 0);
  }
  return available;
}

std::string to_size(std::size_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit)
    value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

memory_plan plan_memory(const engine_options& options, const memory_need& need, int model_context,
                        std::size_t available) {
  if (options.max_context > model_context)
    throw failure(errc::bad_request, "a context of " + std::to_string(options.max_context) +
                  " tokens was asked for, but the model's limit is " + std::to_string(model_context), "max_context");
  memory_plan plan;
  plan.max_context = options.max_context > 0 ? options.max_context : model_context;
  const auto fixed = need.weights + need.activations;
  if (fixed >= available)
    throw failure(errc::out_of_memory, "the weights need " + to_size(need.weights) + " and the activations " +
                  to_size(need.activations) + ", but only " + to_size(available) + " of memory are available");
  const auto left = available - fixed;
  if (options.kv_cache_bytes > left)
    throw failure(errc::out_of_memory, "a KV cache of " + to_size(options.kv_cache_bytes) + " was asked for, but beside " +
                  "the weights and what steps need only " + to_size(left) + " of memory are available", "kv_cache");

  const auto blocks_for = [](std::size_t tokens) { return (tokens + kernels::block_tokens - 1) / kernels::block_tokens; };
  const auto one_sequence = blocks_for(static_cast<std::size_t>(plan.max_context));
  const auto useful = one_sequence * static_cast<std::size_t>(options.max_sequences);
  const auto by_bytes = (options.kv_cache_bytes > 0 ? options.kv_cache_bytes
                                                    : static_cast<std::size_t>(static_cast<double>(left) * default_share)) /
                        need.kv_block;
  auto blocks = options.kv_cache_bytes > 0 ? by_bytes : std::min(useful, by_bytes);
  blocks = std::min<std::size_t>(blocks, std::numeric_limits<std::int32_t>::max() / kernels::block_tokens);
  if (blocks < one_sequence) {
    const auto holds = blocks * kernels::block_tokens;
    if (blocks == 0 || options.max_context > 0)
      throw failure(errc::out_of_memory, "a sequence of " + std::to_string(plan.max_context) + " tokens needs " +
                    to_size(one_sequence * need.kv_block) + " of KV cache, but there is room for " +
                    std::to_string(holds) + " tokens in " + to_size(blocks * need.kv_block), "max_context");
    plan.max_context = static_cast<int>(holds);
  }
  plan.blocks = static_cast<std::int32_t>(blocks);
  plan.line = "weights " + to_size(need.weights) + ", activations " + to_size(need.activations) + ", KV cache " +
              to_size(blocks * need.kv_block) + " (" + std::to_string(blocks * kernels::block_tokens) + " tokens); up to " +
              std::to_string(plan.max_context) + " tokens per sequence";
  if (plan.max_context < (options.max_context > 0 ? options.max_context : model_context))
    plan.line += ", less than the model's " + std::to_string(model_context) + " for want of memory";
  return plan;
}

std::int32_t plan_swap(const engine_options& options, std::size_t kv_block, bool own_memory, std::size_t available) {
  if (options.swap_bytes == 0)
    return 0;
  if (!own_memory)
    throw failure(errc::bad_request, "`swap` is for devices with memory of their own; on a CPU, give the " +
                  to_size(options.swap_bytes) + " to the KV cache", "swap");
  if (!options.prefix_cache)
    throw failure(errc::bad_request, "`swap` keeps what the prefix cache evicts, but the prefix cache is off", "swap");
  if (options.swap_bytes > available)
    throw failure(errc::out_of_memory, to_size(options.swap_bytes) + " of host memory were asked for to swap to, but only " +
                  to_size(available) + " are available", "swap");
  if (options.swap_bytes < kv_block)
    throw failure(errc::bad_request, "`swap` must hold at least one block of the KV cache, which takes " + to_size(kv_block) +
                  ", not " + to_size(options.swap_bytes), "swap");
  return static_cast<std::int32_t>(std::min<std::size_t>(options.swap_bytes / kv_block,
                                                         std::numeric_limits<std::int32_t>::max()));
}

} // namespace troupe
