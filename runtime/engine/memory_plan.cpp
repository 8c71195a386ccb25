#include "runtime/engine/memory_plan.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>

#include <sys/resource.h>
#include <unistd.h>

namespace troupe {

namespace {

namespace fs = std::filesystem;

constexpr auto unknown = std::numeric_limits<std::size_t>::max();

/// Of what is left after the weights, what the KV cache may take by default.
double portion(cache_share share) { return share == cache_share::of_a_machine ? 0.5 : 0.8; }

std::size_t number_in(const fs::path& file) {
  std::size_t n = 0;
  std::ifstream in(file);
  return in >> n ? n : unknown;
}

/// The number behind `key` in a file of lines "key number [unit]".
std::size_t number_in(const fs::path& file, const std::string& key) {
  std::ifstream in(file);
  std::string name, rest;
  for (std::size_t n = 0; in >> name >> n; std::getline(in, rest))
    if (name == key)
      return n;
  return unknown;
}

/// What a control group itself leaves. `names` are the files of limit and use, `cache` the key of what is given back when
/// asked: the page cache, which holds the checkpoint that was just read.
struct group_files {
  const char* limit;
  const char* used;
  const char* cache;
};
constexpr group_files version_1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr group_files version_2{"memory.max", "memory.current", "inactive_file"};

std::size_t left_in(const fs::path& group, const group_files& names) {
  const auto limit = number_in(group / names.limit), used = number_in(group / names.used);
  if (limit == unknown || used == unknown)
    return unknown;
  const auto cache = number_in(group / "memory.stat", names.cache);
  const auto taken = cache == unknown ? used : used - std::min(used, cache);
  return limit > taken ? limit - taken : 0;
}

/// Bytes of address space below the process's limit.
std::size_t left_of_address_space() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return unknown;
  const auto pages = number_in("/proc/self/statm");
  const auto taken = pages == unknown ? 0 : pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return limit.rlim_cur > taken ? limit.rlim_cur - taken : 0;
}

} // namespace

std::size_t memory_left_in_groups(std::string_view groups, const fs::path& mount) {
  auto left = unknown;
  std::istringstream lines{std::string(groups)};
  for (std::string line; std::getline(lines, line);) { // "4:memory:/a/b", or "0::/a/b" for version 2
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos)
      continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && ("," + controllers + ",").find(",memory,") == line.npos)
      continue;
    // Inside a container the path may name a group of the host's that is not mounted here; the root then is the own group.
    const auto root = unified ? mount : mount / "memory";
    auto path = fs::path(line.substr(second + 1)).relative_path();
    for (;; path = path.parent_path()) {
      left = std::min(left, left_in(root / path, unified ? version_2 : version_1));
      if (path.empty())
        break;
    }
  }
  return left;
}

std::size_t available_memory() {
  const auto kib = number_in("/proc/meminfo", "MemAvailable:");
  const auto of_the_machine = kib == unknown ? unknown : kib * 1024;
  std::ifstream file("/proc/self/cgroup");
  const std::string groups{std::istreambuf_iterator(file), {}};
  return std::min({of_the_machine, memory_left_in_groups(groups, "/sys/fs/cgroup"), left_of_address_space()});
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
                        std::size_t available, cache_share share) {
  memory_plan plan;
  const int wanted = options.max_context > 0 ? std::min(options.max_context, model_context) : model_context;
  plan.max_context = wanted;
  const auto fixed = need.weights + need.activations;
  if (fixed >= available)
    throw failure(errc::out_of_memory,
                  "the weights need " + to_size(need.weights) + " and the activations " + to_size(need.activations) +
                    ", but only " + to_size(available) + " of memory are available");
  const auto left = available - fixed;
  if (options.kv_cache_bytes > left)
    throw failure(errc::out_of_memory,
                  "a KV cache of " + to_size(options.kv_cache_bytes) + " was asked for, but beside " +
                    "the weights and what steps need only " + to_size(left) + " of memory are available",
                  "kv_cache");

  const auto blocks_for = [](std::size_t tokens) {
    return (tokens + kernels::block_tokens - 1) / kernels::block_tokens;
  };
  const auto one_sequence = blocks_for(static_cast<std::size_t>(plan.max_context));
  const auto useful = one_sequence * static_cast<std::size_t>(options.max_sequences);
  const auto by_bytes = (options.kv_cache_bytes > 0
                           ? options.kv_cache_bytes
                           : static_cast<std::size_t>(static_cast<double>(left) * portion(share))) /
    need.kv_block;
  auto blocks = options.kv_cache_bytes > 0 ? by_bytes : std::min(useful, by_bytes);
  blocks = std::min<std::size_t>(blocks, std::numeric_limits<std::int32_t>::max() / kernels::block_tokens);
  if (blocks < one_sequence) {
    const auto holds = blocks * kernels::block_tokens;
    if (blocks == 0 || options.max_context > 0)
      throw failure(errc::out_of_memory,
                    "a sequence of " + std::to_string(plan.max_context) + " tokens needs " +
                      to_size(one_sequence * need.kv_block) + " of KV cache, but there is room for " +
                      std::to_string(holds) + " tokens in " + to_size(blocks * need.kv_block),
                    "max_context");
    plan.max_context = static_cast<int>(holds);
  }
  plan.blocks = static_cast<std::int32_t>(blocks);
  plan.line = "weights " + to_size(need.weights) + ", activations " + to_size(need.activations) + ", KV cache " +
    to_size(blocks * need.kv_block) + " (" + std::to_string(blocks * kernels::block_tokens) + " tokens); up to " +
    std::to_string(plan.max_context) + " tokens per sequence";
  if (options.max_context > model_context)
    plan.line += ", all that the model can of the " + std::to_string(options.max_context) + " asked for";
  if (plan.max_context < wanted)
    plan.line += ", less than the model's " + std::to_string(model_context) + " for want of memory";
  return plan;
}

std::int32_t plan_swap(const engine_options& options, std::size_t kv_block, bool own_memory, std::size_t available) {
  if (options.swap_bytes == 0)
    return 0;
  if (!own_memory)
    throw failure(errc::bad_request,
                  "`swap` is for devices with memory of their own; on a CPU, give the " + to_size(options.swap_bytes) +
                    " to the KV cache",
                  "swap");
  if (!options.prefix_cache)
    throw failure(errc::bad_request, "`swap` keeps what the prefix cache evicts, but the prefix cache is off", "swap");
  if (options.swap_bytes > available)
    throw failure(errc::out_of_memory,
                  to_size(options.swap_bytes) + " of host memory were asked for to swap to, but only " +
                    to_size(available) + " are available",
                  "swap");
  if (options.swap_bytes < kv_block)
    throw failure(errc::bad_request,
                  "`swap` must hold at least one block of the KV cache, which takes " + to_size(kv_block) + ", not " +
                    to_size(options.swap_bytes),
                  "swap");
  return static_cast<std::int32_t>(
    std::min<std::size_t>(options.swap_bytes / kv_block, std::numeric_limits<std::int32_t>::max()));
}

} // namespace troupe
