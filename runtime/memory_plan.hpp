// How much memory a model will take, decided before any is allocated: the size of the KV cache and the context it allows.
#pragma once

#include "runtime/engine_options.hpp"
#include "runtime/model.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace troupe {

struct memory_plan {
  std::int32_t blocks = 0;
  int max_context = 0;      // tokens; what was asked for, or less where the cache cannot hold one such sequence
  std::string line;         // "weights 2.0 GiB, activations 12 MiB, KV cache 1.5 GiB: ...", for a person
};

/// Bytes that this process can still take: the machine's available memory, or what its control group leaves.
std::size_t available_memory();

/// `model_context`: the model's own limit. Throws failure(out_of_memory) or failure(bad_request) with a sentence that says
/// what would be needed and what there is.
memory_plan plan_memory(const engine_options& options, const memory_need& need, int model_context, std::size_t available);

/// Blocks of the KV cache that can be parked in options.swap_bytes of host memory, of which `available` are left.
/// `own_memory`: the device's memory is not the host's. Throws failure(out_of_memory) or failure(bad_request).
std::int32_t plan_swap(const engine_options& options, std::size_t kv_block, bool own_memory, std::size_t available);

/// "1.5 GiB".
std::string to_size(std::size_t bytes);

} // namespace troupe
