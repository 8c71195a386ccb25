// Learned activations (Apertus), which GGUF files have among their metadata.
#pragma once

#include "runtime/checkpoint/gguf_file.hpp"
#include "runtime/model/model_config.hpp"

#include <memory>

namespace troupe {

/// Their numbers as tensors of each layer; tensors of other models as they are.
std::unique_ptr<const checkpoint> with_activations(std::unique_ptr<const checkpoint> stored, const gguf_file& file,
                                                   const model_config& model);

} // namespace troupe
