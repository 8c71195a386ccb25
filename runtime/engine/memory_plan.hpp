// How much memory a model will take, decided before any is allocated: the size of the KV cache and the context it allows.
#pragma once

#include "runtime/engine/engine_options.hpp"
#include "runtime/model/model.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace troupe {

struct memory_plan {
  std::int32_t blocks = 0;
  int max_context = 0; // tokens; what was asked for, or less where the cache cannot hold one such sequence
  std::string line;    // "weights 2.0 GiB, activations 12 MiB, KV cache 1.5 GiB: ...", for a person
};

/// Bytes that this process can still take: the machine's available memory, or what its control groups or its limit on
/// address space leave.
std::size_t available_memory();

/// What the control groups of a process leave it, all levels considered: `groups` is the text of /proc/PID/cgroup, `mount`
/// where their hierarchy is mounted (/sys/fs/cgroup). The largest number where there is no limit.
std::size_t memory_left_in_groups(std::string_view groups, const std::filesystem::path& mount);

/// Whose memory the KV cache is taken from where no size is asked for. Others need a machine's memory, too: the cache gets
/// half of what is available beside weights and activations, so that a second server still finds its own half. A device's
/// memory is there for this.
enum class cache_share : std::uint8_t { of_a_machine, of_a_device };

/// `model_context`: the model's own limit, which is taken where more is asked for. Throws failure(out_of_memory) or
/// failure(bad_request) with a sentence that says what would be needed and what there is.
memory_plan plan_memory(const engine_options& options, const memory_need& need, int model_context,
                        std::size_t available, cache_share share);

/// Blocks of the KV cache that can be parked in options.swap_bytes of host memory, of which `available` are left.
/// `own_memory`: the device's memory is not the host's. Throws failure(out_of_memory) or failure(bad_request).
std::int32_t plan_swap(const engine_options& options, std::size_t kv_block, bool own_memory, std::size_t available);

/// "1.5 GiB".
std::string to_size(std::size_t bytes);

} // namespace troupe
