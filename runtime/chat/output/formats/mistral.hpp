// What Mistral's two formats have in common.
#pragma once

#include "runtime/chat/output/call_format.hpp"

namespace troupe {

inline constexpr std::string_view mistral_marker = "[TOOL_CALLS]";

/// Reads both forms: a list of objects, and name[ARGS]{...}, maybe with [CALL_ID] between.
std::unique_ptr<call_reader> mistral_reader(delta_sink& out);

/// Nine letters and digits, which its templates insist on.
std::string mistral_id(std::string_view entropy, std::size_t index);

} // namespace troupe
