// What is asked of one request's output: how its model marks reasoning and calls, and the tools that it may call. Shared
// by the parsers of all its choices. Immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class call_format;
class reasoning_format;

/// How a model writes what is not content. Found from its chat template (find_chat_format); null: it does not.
struct chat_format {
  const reasoning_format* reasoning = nullptr;
  const call_format* calls = nullptr;
};

/// A function that the model may call.
struct offered_tool {
  std::string name;
  std::string parameters; // a JSON Schema as text; empty: any object
  bool strict = false;    // its schema must be enforced, or the request refused

  /// Whether a value of this parameter that is written as plain text is a string. By the schema; false if unknown.
  bool is_string(std::string_view parameter) const;
};

/// Which calls an answer has.
enum class call_choice : std::uint8_t {
  none,      // the tools are not shown
  automatic, // any number of them, as the model likes
  required,  // one at least, and nothing else
  named,     // one, of `tools.front()`
};

struct chat_output {
  chat_format format;
  std::vector<offered_tool> tools; // none: no text is a call
  call_choice choice = call_choice::automatic;
  bool parallel = true;         // several calls in one answer
  bool with_reasoning = true;   // false: reasoning is left out of the answer
  bool opens_reasoning = false; // the prompt ends inside of the model's reasoning

  static constexpr std::size_t most_calls = 128; // further ones are content
  const offered_tool* find(std::string_view name) const;
};

} // namespace troupe
