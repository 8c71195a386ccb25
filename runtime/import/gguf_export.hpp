// Writes a model as one GGUF file with its weights quantised: configuration, tokenizer and chat template translated
// from Hugging Face's files, or copied where the model is a GGUF file already. Runs on the caller's thread and a pool's.
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
  std::size_t stored_bytes = 0;  // of tensors as they were
  std::size_t written_bytes = 0; // and as they are
  double relative_error = 0;     // root mean square of what quantisation changed, over that of the weights
};

/// `model`: as open_model takes it, but not synthetic. Matrices become `to`; the table of embeddings and the matrix that
/// makes logits q8_0 at least; where rows do not fill blocks, f16. Those that are stored so already stay as they are; of a
/// model with others that are quantised, all become `to` from those values with `requantise`, else it is refused, as much
/// is lost that the original still has. Vectors become f32. Tensors that the model does not use are left out; `say` hears of them, where
/// check_tensors does not refuse them. The tokenizer is read back and compared before anything is written.
/// Throws failure(unsupported) for what GGUF cannot say, failure(bad_request) where `file` is there and is not a
/// regular file, or is the one that is read, or all matrices of a GGUF file are `to` already, and as open_model and gguf_writer.
export_result export_gguf(const std::string& model, tensor_type to, const std::filesystem::path& file,
                          kernels::thread_pool& pool, const progress_fn& progress = {}, const log_sink& say = {},
                          bool requantise = false);

} // namespace troupe
