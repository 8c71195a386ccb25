// Rows that a client gives in place of a prompt's first tokens: what another model made of an image, or a soft prompt.
// Plain data; immutable once it is shared.
#pragma once

#include <cstdint>
#include <vector>

namespace troupe {

struct prompt_embeddings {
  std::int32_t rows = 0;
  std::int32_t width = 0;         // the model's hidden size
  std::vector<float> values = {}; // [rows, width]
};

} // namespace troupe
