// What GGUF files say of embeddings and scores: pooling, prompts, and the layers over pooled states, in llama.cpp's
// keys and names as far as it has them, else in keys of our own ("troupe.", which other programs pass over). Both
// directions.
#pragma once

#include "runtime/checkpoint/gguf_file.hpp"
#include "runtime/checkpoint/gguf_writer.hpp"
#include "runtime/import/model_source.hpp"

#include <memory>
#include <string_view>
#include <vector>

namespace troupe {

/// A tensor of a file that is not one of the model's: its values, as f32.
struct further_tensor {
  std::string name;
  std::vector<std::size_t> shape;
  std::vector<float> values;
};

/// Adds the keys of embeddings and scores, and returns the layers over pooled states. `own`: the file is in Troupe's
/// own form. Throws failure(unsupported) where the architecture has no such layers.
std::vector<further_tensor> describe_pooling(gguf_writer& to, std::string_view architecture, bool own,
                                             const model_source& source);

struct gguf_pooled {
  embedding_style embeddings;
  head_loader load_ranker;                  // empty: the model does not score
  std::shared_ptr<const pooled_head> dense; // null: none
};

/// `tensors`: of the file, as they are presented.
gguf_pooled read_gguf_pooling(const std::shared_ptr<const gguf_file>& file, const model_config& model,
                              const checkpoint& tensors);

} // namespace troupe
