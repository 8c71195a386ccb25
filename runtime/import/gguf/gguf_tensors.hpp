// Writes a model's tensors into a GGUF file: each in the type that its format has for it, in the order of the file.
// Runs on the caller's thread and a pool's.
#pragma once

#include "kernels/cpu/thread_pool.hpp"
#include "runtime/import/gguf/gguf_export.hpp"
#include "runtime/import/gguf/gguf_layout.hpp"
#include "runtime/import/gguf/gguf_pooling.hpp"
#include "runtime/import/model_source.hpp"

#include <filesystem>
#include <vector>

namespace troupe {

/// The importances of part `part` of a tensor of the file, such as an expert; null if there are none. Throws if they
/// are of another matrix.
const float* importance_of(const export_options& options, const laid_out_tensor& tensor, std::size_t part);

/// `further`: tensors in f32 behind those of `layout`, as they are. Everything that is passed is used until the end.
export_result write_gguf_tensors(const model_source& source, const export_format& format,
                                 std::vector<laid_out_tensor> layout, const std::vector<further_tensor>& further,
                                 gguf_writer& file, const std::filesystem::path& path, kernels::thread_pool& pool,
                                 const export_options& options, const progress_fn& progress);

} // namespace troupe
