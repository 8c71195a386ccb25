// Reads the input items of a response, as messages of a chat and as the items that are listed later. Pure; runs on
// worker threads.
#pragma once

#include "api/openai/responses/conversation.hpp"
#include "runtime/support/json/field_reader.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe {

/// Items of `input`.
inline constexpr std::size_t most_input_items = 8192;

/// Adds the items of `input` to a conversation. Returns them as they are listed: a JSON list. Throws failure naming the
/// item.
std::string read_response_input(const field_reader& body, conversation& to);

/// Reasoning as `encrypted_content`, for clients that keep nothing else of it. It is not secret, and so not encrypted.
std::string sealed_reasoning(std::string_view text);
/// The inverse; nothing if another server made it.
std::string opened_reasoning(std::string_view sealed);

} // namespace troupe
