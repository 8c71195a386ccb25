// Writes a model as a folder of Hugging Face's files with 2 of every 4 weights of its layers' matrices, as
// compressed-tensors' `sparse-24-bitmask` stores them. Runs on the caller's thread and a pool's.
#pragma once

#include "runtime/import/gguf/gguf_export.hpp"

#include <filesystem>
#include <string>

namespace troupe {

/// Which weights stay: those of the largest magnitude; times the size of their inputs (Wanda: Sun et al.,
/// https://arxiv.org/abs/2306.11695), if `importance` is there; or, with `feedback`, as prune_with_feedback does. The
/// last alone changes those that stay.
struct pruning {
  const importance_table* importance = nullptr;
  feedback_fn feedback = {};
};

/// `model`: a folder, or an id in the hub's cache. `folder` is new, or empty; it appears when it is complete. Other
/// tensors, and the types of all, stay as stored. Throws failure(bad_request) if the importance matrix is of another
/// model, failure(unsupported) for rows that are no multiple of 8 and weights that are not finite, and as open_folder,
/// new_folder and `feedback`.
export_result export_pruned(const std::string& model, const std::filesystem::path& folder, kernels::thread_pool& pool,
                            const pruning& how = {}, const progress_fn& progress = {}, const log_sink& log = {});

} // namespace troupe
