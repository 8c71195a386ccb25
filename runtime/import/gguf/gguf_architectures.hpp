// Which architecture a GGUF file or a model has, and how its tensors are presented. What architectures are is in the
// rows of families (runtime/model/families).
#pragma once

#include "runtime/checkpoint/arranged_checkpoint.hpp"
#include "runtime/model/families/gguf_architecture.hpp"
#include "runtime/model/model_config.hpp"

#include <memory>
#include <string_view>

namespace troupe {

/// The architecture of a file that is read. Throws failure(unsupported) naming the key.
gguf_architecture gguf_architecture_of(const gguf_file& file);

/// In which models of this family are written; without a name if there is none.
gguf_architecture gguf_architecture_of_family(std::string_view family);

/// Its name for a model; empty if GGUF has none, or it is not written.
std::string_view gguf_architecture_for(const model_config& model);

/// The tensors of a file, under the names of folders where there is one, as the decoder wants
/// them: fused matrices, experts, sinks, rows in the order in which kernels rotate.
std::unique_ptr<const checkpoint> arrange_gguf(std::unique_ptr<const checkpoint> stored, const model_config& model);

} // namespace troupe
