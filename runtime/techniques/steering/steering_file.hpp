// Files of steering vectors: safetensors, or GGUF's control vectors as llama.cpp writes them. Both hold one tensor
// `direction.N` of [hidden] values for each layer N that is steered, counted from 0; GGUF files also
// `general.architecture` = "controlvector". Files are untrusted: everything is checked before it is used.
#pragma once

#include "runtime/techniques/steering/steering.hpp"

#include <filesystem>
#include <string>

namespace troupe {

/// Reads a file of either format, for a model with so many layers and values per row; the result has as many layers.
/// Throws failure(not_found | bad_file | unsupported) that names file and tensor, what was found and what was expected:
/// for other tensors, layers that the model does not have, other widths, values that are not finite, no tensor at all.
layer_directions read_steering(const std::filesystem::path& file, int layers, int hidden);

/// Writes f32: control vectors if the name ends in ".gguf", else safetensors. Layers without values are left out, as is
/// layer 0 of control vectors, which llama.cpp refuses. `model_hint`: the family, for GGUF. Throws failure(bad_file).
void write_steering(const std::filesystem::path& file, const layer_directions& directions,
                    const std::string& model_hint);

} // namespace troupe
