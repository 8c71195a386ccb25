// What the answer must look like: OpenAI's `response_format`, vLLM's `structured_outputs` and its older `guided_*`
// fields, llama.cpp's `grammar` and `json_schema`. Shared by completions, chat and WebSocket. Pure; runs on worker
// threads.
#pragma once

#include "runtime/guide/guide_source.hpp"
#include "runtime/support/json/field_reader.hpp"

#include <cstddef>
#include <memory>

namespace troupe {

inline constexpr std::size_t most_guide_choices = 16384;

/// Null if the body asks for none. Throws failure(bad_request) naming the field if one has the wrong shape or two
/// contradict each other. What the schema, pattern or grammar says is checked when the engine compiles it.
std::shared_ptr<const guides::guide_source> read_guide(const field_reader& body);

} // namespace troupe
