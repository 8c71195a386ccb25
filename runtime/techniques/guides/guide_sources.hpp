// Where guides come from: fields of requests, flags, and the format of answers with reasoning and calls. Pure and fast:
// nothing is compiled here, but what flags name is checked.
#pragma once

#include "runtime/guide/guide_source.hpp"
#include "runtime/techniques/technique.hpp"

#include <cstddef>
#include <memory>

namespace troupe::guides {

using source_ptr = std::shared_ptr<const guide_source>;

inline constexpr std::size_t most_guide_choices = 16384;

/// OpenAI's `response_format`, vLLM's `structured_outputs` and its older `guided_*` fields, llama.cpp's `grammar` and
/// `json_schema`. Null if the body asks for none. Throws failure naming the field if one has the wrong shape or two
/// contradict each other.
source_ptr read_guide(const field_reader& body);

/// What flags name, as it is in files. Null if they name nothing. Throws failure(bad_request) if several are given, if
/// some have no effect, or with file and line if a guide is malformed.
source_ptr source_of_flags(const flag_values& flags);

/// What answers follow that may have reasoning and calls: a structural tag made of the tools' schemas, in the model's own
/// format; null: nothing. Reasoning with a budget is bounded by it. `content` is what their content must follow, or null.
///
/// Forced calls follow their schemas. So do others, from the text on that begins them; but where a schema cannot be
/// enforced and is not `strict`, arguments may be any JSON object. Whether it can be is found out when the guide is
/// compiled, which then fails naming `tools[i].function.parameters`, as this does where the format of calls is at
/// fault. Throws failure(unsupported) naming `tools` where `content` is of a kind that cannot stand beside calls.
source_ptr output_guide(const chat_output& what, source_ptr content);

} // namespace troupe::guides
