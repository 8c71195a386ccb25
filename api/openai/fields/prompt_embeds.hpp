// vLLM's `prompt_embeds`: rows that stand in place of a prompt's tokens, as tensors that torch.save wrote, in base64.
// Pure; runs on worker threads.
#pragma once

#include "api/openai/fields/field_reader.hpp"
#include "api/service/served_model.hpp"
#include "runtime/scheduling/prompt_embeddings.hpp"

#include <memory>
#include <string_view>
#include <vector>

namespace troupe {

/// One for each prompt; none if the field is absent. Throws failure naming the field.
std::vector<std::shared_ptr<const prompt_embeddings>> read_prompt_embeds(const field_reader& body,
                                                                         const served_model& model);

/// A file of torch.save with one tensor of two dimensions, of float, half, bfloat16 or double. Throws
/// failure(bad_request) with one sentence.
prompt_embeddings parse_saved_tensor(std::string_view file);

} // namespace troupe
