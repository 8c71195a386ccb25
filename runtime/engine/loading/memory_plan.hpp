// How the memory of a model is divided, decided before any is allocated: the size of the KV cache, the context that it
// allows, and the host block pool.
#pragma once

#include "runtime/engine/engine_options.hpp"
#include "runtime/engine/loading/memory_ledger.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace troupe {

struct memory_plan {
  std::int32_t blocks = 0;           // of each replica
  std::int32_t snapshots = 0;        // of recurrent layers' states, of each replica
  int max_context = 0;               // tokens; as asked for, or less if the cache cannot hold one such sequence
  std::vector<memory_promise> parts; // "weights", "activations", "states", "KV cache"
  std::string line;                  // "weights 2.0 GiB, activations 12 MiB, KV cache 1.5 GiB: ...", for the log
};

/// The memory that the KV cache is taken from if no size is asked for. A machine's memory is shared: the cache gets
/// half of what is available beside weights and steps, so that a second server still finds its own half. A device's
/// memory is there for this.
enum class cache_share : std::uint8_t { of_a_machine, of_a_device };

/// Throws failure(out_of_memory): "WHAT needs 3.0 GiBPURPOSE, but only 1.5 GiB are available".
void require_memory(const std::string& what, std::size_t needed, std::size_t available,
                    const std::string& purpose = {});

/// Rows of a step, unless the user says: `most`, or fewer, down to 1024 beside a full batch, if steps would take more
/// than an eighth of what weights leave of `available`, or of what options.kv_cache_bytes need. `need_of`: the memory
/// of a model with steps of so many rows.
int plan_step_rows(int most, const engine_options& options, const std::function<memory_estimate(int)>& need_of,
                   std::size_t available);

/// `need`: of all replicas, but for the blocks. `model_context`: the model's own limit, which larger wishes are cut to.
/// Throws failure(out_of_memory | bad_request) with a sentence that names what would be needed and what is available.
memory_plan plan_memory(const engine_options& options, const memory_estimate& need, int model_context,
                        std::size_t available, cache_share share);

/// Bytes that are kept free of weights where not all of these fit in `available`: for the KV cache that was asked for,
/// or for one of an eighth of the memory (plan_memory gives it half of what is left), and for states.
std::size_t room_beside_weights(const engine_options& options, const memory_estimate& need, int model_context,
                                std::size_t available);

/// Blocks of the host block pool in options.swap_bytes of host memory, of which `available` are left beside all else.
/// Throws failure(out_of_memory | bad_request).
std::int32_t plan_swap(const engine_options& options, std::size_t kv_block, std::size_t available);

} // namespace troupe
