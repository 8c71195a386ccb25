// Writes a model as one GGUF file with quantised weights. Configuration, tokenizer and chat template are translated
// from Hugging Face's files, or copied from a GGUF file. Runs on the caller's thread and a pool's.
#pragma once

#include "kernels/cpu/thread_pool.hpp"
#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/model/weights.hpp"

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// A format that `export_gguf` can write matrices in.
struct export_format {
  std::string_view name; // "q8_0"
  tensor_type type;
};

std::span<const export_format> export_formats();

struct export_result {
  std::size_t stored_bytes = 0;  // tensors of the source
  std::size_t written_bytes = 0; // tensors of the file
  double relative_error = 0;     // root mean square of the change, relative to that of the weights
};

/// `model`: as for open_model, but not synthetic. Matrices become `to`; the embedding table and the head become q8_0 at
/// least; matrices whose rows do not fill blocks become f16, and those already in their target format are copied. A
/// model with matrices quantised otherwise is refused unless `requantise`, as that adds to an error which the original
/// model does not have. Vectors become f32. Unused tensors are left out, and logged if check_tensors allows them. The
/// tokenizer is read back and compared before anything is written. Throws failure(unsupported) for anything that GGUF
/// cannot express, failure(bad_request) if `file` is not a regular file or is the source itself, or if all matrices of
/// a GGUF file are `to` already, and as open_model and gguf_writer.
export_result export_gguf(const std::string& model, tensor_type to, const std::filesystem::path& file,
                          kernels::thread_pool& pool, const progress_fn& progress = {}, const log_sink& log = {},
                          bool requantise = false);

} // namespace troupe
