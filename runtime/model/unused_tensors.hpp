// Judges a checkpoint's tensors that a model does not use. Used by check_tensors.
#pragma once

#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/model/model_config.hpp"

#include <set>
#include <string>
#include <vector>

namespace troupe {

/// Looks at the tensors that are not in `used`. Tensors without effect are ignored: a tied head stored twice, rotary
/// frequencies, masks, scales for int8 or fp8 activations, biases of zeros (which some GPTQ tools write). Other tensors
/// of the model's layers, or of embedding, final norm and head, would change the results: throws failure(unsupported)
/// naming the first. Layers beyond the configuration's (multi-token prediction) and other parts (vision) do not affect
/// text: returns a sentence for each of these two kinds, and one for every multimodal model.
std::vector<std::string> check_unused_tensors(const checkpoint& tensors, const model_config& config,
                                              const std::set<std::string>& used);

} // namespace troupe
