// What tensors are called in GGUF files and in Hugging Face's folders: one table for reading and writing.
#pragma once

#include "runtime/model/model_config.hpp"

#include <string>
#include <string_view>

namespace troupe {

class gguf_names {
public:
  /// For tensors that have one name in all models, as all matrices do.
  gguf_names() = default;
  /// Of a model, whose norms may have names of their own.
  explicit gguf_names(const model_config& model);

  /// "model.norm.weight" → "output_norm.weight", and back. A name without a counterpart is kept.
  std::string in_file(std::string_view folder) const;
  std::string in_folder(std::string_view file) const;

private:
  unsigned conditions_ = 0;
};

/// gguf_names().in_file
std::string gguf_tensor_name(std::string_view folder);

} // namespace troupe
