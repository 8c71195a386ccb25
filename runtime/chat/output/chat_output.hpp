// What one request expects of its output: how its model marks reasoning and calls, and the tools that it may call. The
// parsers of all its choices share it. Immutable.
#pragma once

#include "runtime/chat/output/chat_format.hpp"
#include "runtime/chat/output/parameter_kind.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

class technique_uses; // runtime/techniques/technique_uses.hpp

/// A function that the model may call.
struct offered_tool {
  /// Throws failure(bad_request) if `parameters` is no JSON.
  offered_tool(std::string name, std::string parameters, bool strict = false);

  std::string name;
  std::string parameters;   // a JSON Schema as text; empty: any object
  bool strict;              // its schema must be enforced, or the request refused
  std::size_t position = 0; // in the request's `tools`

  /// The kind of a parameter's values.
  parameter_kind kind_of(std::string_view parameter) const;

private:
  std::vector<std::pair<std::string, parameter_kind>> kinds_; // of the parameters that say something
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
  bool parallel = true;          // several calls in one answer
  bool with_reasoning = true;    // false: reasoning is left out of the answer
  bool opens_reasoning = false;  // the prompt ends inside of the model's reasoning
  bool bounds_reasoning = false; // it has a budget

  static constexpr std::size_t most_calls = 128; // further ones are content
  const offered_tool* find(std::string_view name) const;
  /// Whether parts of the text can be calls.
  bool reads_calls() const;
  /// Whether the text must be taken apart at all.
  bool is_needed() const;

  /// Completes it by the prompt, which may open or close reasoning, also within the answer's beginning.
  void note_prompt(std::string_view prompt, bool continues_reasoning = false, bool continues_content = false);
  /// Adds to what the answers of a request follow, where a technique constrains answers. Throws failure if the format of
  /// calls, or what the content follows, is at fault; or if nothing can force a call, or bound reasoning.
  void constrain(technique_uses& uses) const;
};

} // namespace troupe
