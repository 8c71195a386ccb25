// What a sentence-transformers checkpoint says about its embeddings: modules.json, and the configuration of its pooling
// module. Called by open_model.
#pragma once

#include "runtime/sampling/pooling.hpp"

#include <filesystem>

namespace troupe {

/// The defaults if the folder has neither file. Steps that are not implemented become the style's `refusal`, as the
/// model can still generate. Throws failure(bad_file) naming the file and the key.
embedding_style read_embedding_style(const std::filesystem::path& folder);

} // namespace troupe
