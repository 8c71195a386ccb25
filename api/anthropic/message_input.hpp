// The `system` and `messages` of Anthropic's requests as messages of a chat. Pure functions, used on worker threads.
#pragma once

#include "runtime/support/json/field_reader.hpp"

#include <string>
#include <utility>
#include <vector>

namespace troupe {

struct message_input {
  std::vector<std::string> messages; // of a chat: JSON
  /// Paths of the chat's messages, and what the client has there.
  std::vector<std::pair<std::string, std::string>> paths;
  bool continues = false; // the last one is the assistant's: the answer goes on within it
};

/// Neighbouring messages of one role become one. Throws failure naming the field; images and other blocks that are no
/// text are unsupported.
message_input read_message_input(const field_reader& body);

} // namespace troupe
