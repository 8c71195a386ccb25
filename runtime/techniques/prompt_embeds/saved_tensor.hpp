// Tensors as torch.save writes them. Pure; any thread.
#pragma once

#include "runtime/techniques/prompt_embeds/prompt_embeddings.hpp"

#include <string_view>

namespace troupe {

/// A file of torch.save with one tensor of two dimensions, of float, half, bfloat16 or double. Throws
/// failure(bad_request) with one sentence.
prompt_embeddings parse_saved_tensor(std::string_view file);

} // namespace troupe
