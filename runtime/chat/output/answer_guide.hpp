// The guide of an answer that may have reasoning and calls: a structural tag made of the tools' schemas, in the model's
// own format. Pure; compiles schemas to see whether they can be enforced, so it runs on worker threads.
#pragma once

#include "runtime/chat/output/chat_output.hpp"
#include "runtime/guide/guide_source.hpp"
#include "runtime/guide/limits.hpp"

#include <memory>

namespace troupe {

/// What each answer follows; null: nothing. `content` is what its content must follow, or null.
///
/// Forced calls follow their schemas. So do others, from the text on that begins them; but where a schema cannot be
/// enforced and is not `strict`, arguments may be any JSON object. Throws failure(bad_request) naming
/// `tools[i].function.parameters` where a schema that must be enforced cannot be; failure(unsupported) naming `tools`
/// where `content` is of a kind that cannot stand beside calls.
std::shared_ptr<const guides::guide_source> answer_guide(const chat_output& what,
                                                         std::shared_ptr<const guides::guide_source> content,
                                                         const guides::guide_limits& limits = {});

} // namespace troupe
