// Names of a text model's tensors within a multimodal checkpoint. Used when such a checkpoint is opened, and for
// adapters that were trained on one. Pure functions.
#pragma once

#include "runtime/checkpoint/checkpoint.hpp"

#include <memory>
#include <string>
#include <string_view>

namespace troupe {

/// The name that a tensor has in a checkpoint of the text alone: "model.language_model.layers.0.mlp.up_proj.weight" is
/// "model.layers.0.mlp.up_proj.weight". Names of other parts are kept, except those that would look like the text's.
std::string text_tensor_name(std::string_view stored);

/// Presents all tensors under these names. Throws failure(bad_file) where two have the same.
std::unique_ptr<const checkpoint> open_text_tensors(std::unique_ptr<const checkpoint> stored);

} // namespace troupe
