// The `tools` and `tool_choice` of Anthropic's requests as those of a chat. Pure functions, used on worker threads.
#pragma once

#include "runtime/support/json/field_reader.hpp"

#include <string>
#include <utility>
#include <vector>

namespace troupe {

struct message_tools {
  std::vector<std::string> tools; // of a chat: JSON
  std::string choice;             // of a chat: JSON; empty: absent
  bool parallel = true;
  /// Paths of the chat's tools, and what the client has there.
  std::vector<std::pair<std::string, std::string>> paths;
  std::vector<std::string> notes; // on what is left out
};

/// Tools that have no schema, as Anthropic or its clients know them by their type, are left out. Throws failure naming
/// the field.
message_tools read_message_tools(const field_reader& body);

} // namespace troupe
