// What a sentence-transformers checkpoint says about its embeddings: modules.json, and the configuration of its pooling
// module. Called by open_model.
#pragma once

#include "runtime/sampling/pooling.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace troupe {

/// How texts are embedded, and what sentence-transformers does beside it.
struct sentence_style {
  embedding_style embeddings = {};
  std::vector<std::filesystem::path> dense = {}; // folders of layers behind the pooling, in order
  int max_tokens = 0;                            // of a text; 0: as many as the model takes
  std::string activation = {}; // of a cross-encoder's scores, as Python names it; empty: as config.json says
};

/// The defaults if the folder has neither file. Steps that are not implemented become the style's `refusal`, as the
/// model can still generate. Throws failure(bad_file) naming the file and the key.
sentence_style read_sentence_style(const std::filesystem::path& folder);

} // namespace troupe
