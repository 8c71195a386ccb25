// Writes a model as a folder of Hugging Face's files with the matrices of its layers in fp8: E4M3 with a scale per
// output, as compressed-tensors has them. Runs on the caller's thread and a pool's.
#pragma once

#include "runtime/import/gguf/gguf_export.hpp"

#include <filesystem>
#include <string>

namespace troupe {

/// Other tensors stay as stored. `folder` is new, or empty; it appears when it is complete. Throws as open_folder and
/// new_folder, and failure(unsupported) for weights that are not finite.
export_result export_fp8(const std::string& model, const std::filesystem::path& folder, kernels::thread_pool& pool,
                         const progress_fn& progress = {}, const log_sink& log = {});

} // namespace troupe
