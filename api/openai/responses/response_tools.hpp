// The tools of a response, translated into those of a chat. Functions within a namespace become functions of their own;
// tools that a server would have to run are left out. Pure; runs on worker threads.
#pragma once

#include "runtime/support/json/field_reader.hpp"

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// Functions within namespaces, by the names that the model sees and calls.
class tool_namespaces {
public:
  struct function {
    std::string space, name;
  };

  /// "space__name", the way in which agents write functions of MCP servers.
  static std::string shown_name(std::string_view space, std::string_view name);

  /// Returns its shown name.
  std::string add(std::string_view space, std::string_view name);
  /// Null if that function is in no namespace.
  const function* find(const std::string& shown) const;

private:
  std::map<std::string, function> functions_;
};

struct response_tools {
  std::string tools, choice;                              // of the chat: JSON; empty: not given
  std::string repeated_tools = "[]";                      // what the response object says of them: JSON
  std::string repeated_choice = "\"auto\"";               //
  tool_namespaces namespaces;                             //
  std::vector<std::pair<std::string, std::string>> paths; // of each tool in the chat, and in the client's body
  std::vector<std::string> notes;                         // what is left out
};

/// The name that the model sees of a function that `of` names, with or without its namespace.
std::string shown_function(const field_reader& of);

/// Throws failure naming the field.
response_tools read_response_tools(const field_reader& body);

} // namespace troupe
