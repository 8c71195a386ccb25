// Decides, before any weights are loaded, what an opened model takes: rows of a step, blocks of KV caches, the context,
// and what is promised of memory for it.
#pragma once

#include "runtime/engine/loading/loaded_model.hpp"
#include "runtime/engine/loading/opened_model.hpp"

#include <span>
#include <string>
#include <vector>

namespace troupe {

struct load_plan {
  std::size_t weight_bytes = 0;   // of the model alone, in all devices, and what stays in files
  std::size_t kv_cache_bytes = 0; // of the model alone, in all replicas
  int max_context = 0;
  std::vector<replica_plan> replicas;
  std::vector<memory_entry> promised;
  std::vector<log_line> lines; // for the log
};

/// Also prepares the models beside `opened` for loading. Throws failure(out_of_memory | bad_request).
load_plan plan_load(const engine_options& options, opened_model& opened);

/// The lengths behind which the positions of a sequence are rotated otherwise in one of these models.
std::vector<int> rope_borders(std::span<const model_config* const> models, int max_context);

} // namespace troupe
