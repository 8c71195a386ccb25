// The guide of an answer that may have reasoning and calls: a structural tag made of the tools' schemas, in the model's
// own format. Pure; compiles schemas to see whether they can be enforced, so it runs on worker threads.
#pragma once

#include "runtime/chat/output/chat_output.hpp"
#include "runtime/guide/guide_source.hpp"
#include "runtime/guide/limits.hpp"

#include <memory>

namespace troupe {

/// Looking at tools is no more than a part of what a request costs before it is admitted: real ones need a hundredth.
inline constexpr guides::guide_limits tool_limits{.expressions = 250'000};

/// What each answer follows; null: nothing. `content` is what its content must follow, or null.
///
/// Forced calls follow their schemas. So do others, from the text on that begins them; but where a schema cannot be
/// enforced and is not `strict`, arguments may be any JSON object. Throws failure(bad_request) naming
/// `tools[i].function.parameters` where a schema that must be enforced cannot be; failure(unsupported) naming `tools`
/// where `content` is of a kind that cannot stand beside calls.
std::shared_ptr<const guides::guide_source> output_guide(const chat_output& what,
                                                         std::shared_ptr<const guides::guide_source> content,
                                                         const guides::guide_limits& limits = tool_limits);

} // namespace troupe
