// Writes a model as a folder of Hugging Face's files with the matrices of its layers quantised by GPTQ, as
// transformers, vLLM and others read it. Runs on the caller's thread and a pool's.
#pragma once

#include "runtime/checkpoint/quantised/gptq.hpp"
#include "runtime/import/gguf/gguf_export.hpp"

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

struct gptq_options {
  gptq_format format;
  bool by_importance = false; // as the feedback was made: inputs have groups by their order (`desc_act`)
};

/// `model`: a folder, or an id in the hub's cache. `folder` is new, or empty; it appears when it is complete. Other
/// tensors stay as stored. Throws failure(bad_request) for rows that groups do not divide, and as open_folder,
/// new_folder and `feedback`.
export_result export_gptq(const std::string& model, const gptq_options& options, const std::filesystem::path& folder,
                          kernels::thread_pool& pool, const feedback_fn& feedback, const progress_fn& progress = {},
                          const log_sink& log = {});

} // namespace troupe
