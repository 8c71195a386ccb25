// Writes a model as one GGUF file with quantised weights. Configuration, tokenizer and chat template are translated
// from Hugging Face's files, or copied from a GGUF file. Runs on the caller's thread and a pool's.
#pragma once

#include "kernels/cpu/thread_pool.hpp"
#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/checkpoint/importance_file.hpp"
#include "runtime/checkpoint/packed/packed_cache.hpp"
#include "runtime/checkpoint/quantised/gptq.hpp"
#include "runtime/import/format_mix.hpp"
#include "runtime/model/decoder/weights.hpp"

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace troupe {

/// The error feedback of a matrix; null if nothing is known of its inputs.
using feedback_fn = std::function<std::shared_ptr<const error_feedback>(const std::string& matrix)>;

struct export_options {
  bool requantise = false;                      // accept matrices that are quantised already
  bool pure = false;                            // no mix: every matrix in the format's type
  const importance_table* importance = nullptr; // what errors count; null: all alike
  feedback_fn feedback = {};                    // blocks are chosen with it (gptq.hpp), instead of `importance`
};

struct export_result {
  std::size_t stored_bytes = 0;  // tensors of the source
  std::size_t written_bytes = 0; // tensors of the file
  double relative_error = 0;     // root mean square of the change, relative to that of the weights
  std::size_t weights = 0;       // elements of matrices in the file
  std::size_t matrix_bytes = 0;  // and their bytes

  double bits_per_weight() const {
    return weights > 0 ? 8 * static_cast<double>(matrix_bytes) / static_cast<double>(weights) : 0;
  }
};

/// `model`: as for open_model, but not synthetic. Matrices become what the format's mix says (format_mix.hpp), and
/// those already in their target format are copied. A model with matrices quantised otherwise is refused unless asked
/// for, as that adds to an error which the original model does not have. Vectors become f32. Unused tensors are left
/// out, and logged if check_tensors allows them; so are matrices that the importance matrix does not know. The
/// tokenizer is read back and compared before anything is written. Throws failure(unsupported) for anything that GGUF
/// cannot express, failure(bad_request) if `file` is not a regular file or is the source itself, if all matrices of a
/// GGUF file are in their format already, or if the importance matrix is of another model, and as open_model and
/// gguf_writer.
export_result export_gguf(const std::string& model, const export_format& format, const std::filesystem::path& file,
                          kernels::thread_pool& pool, const export_options& options = {},
                          const progress_fn& progress = {}, const log_sink& log = {});

} // namespace troupe
