// Makes the guide of an answer that may have reasoning and calls: a structural tag made of the tools' schemas, in the
// model's own format. Pure and fast: nothing is compiled here.
#pragma once

#include "runtime/chat/output/chat_output.hpp"
#include "runtime/guide/guide_source.hpp"

#include <memory>

namespace troupe {

/// What each answer follows; null: nothing. Reasoning with a budget is bounded by it. `content` is what its content
/// must follow, or null.
///
/// Forced calls follow their schemas. So do others, from the text on that begins them; but where a schema cannot be
/// enforced and is not `strict`, arguments may be any JSON object. Whether it can be is found out when the guide is
/// compiled, which then fails naming `tools[i].function.parameters`, as this does where the format of calls is at
/// fault. Throws failure(unsupported) naming `tools` where `content` is of a kind that cannot stand beside calls.
std::shared_ptr<const guides::guide_source> output_guide(const chat_output& what,
                                                         std::shared_ptr<const guides::guide_source> content);

} // namespace troupe
