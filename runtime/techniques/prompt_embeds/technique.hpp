// vLLM's `prompt_embeds` as a technique: rows that stand in place of a prompt's tokens.
#pragma once

#include "runtime/techniques/prompt_embeds/prompt_embeddings.hpp"
#include "runtime/techniques/technique.hpp"

#include <memory>

namespace troupe {

extern const technique prompt_embeds_technique;

/// A use of rows in place of as many of the prompt's first tokens.
technique_use_ptr given_rows(std::shared_ptr<const prompt_embeddings> rows);

/// The rows of a use of this technique. Null: it is null.
const prompt_embeddings* rows_of(const technique_use* use);

} // namespace troupe
