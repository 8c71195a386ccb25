// Which types a parameter's schema admits, for formats of calls that write strings as plain text. Pure.
#pragma once

#include "runtime/support/json/json_fwd.hpp"

#include <string_view>

namespace troupe {

/// JSON's types that a schema admits, as far as `type`, `enum`, `const`, `anyOf` and `oneOf` say. Without `known` it
/// may be anything.
struct parameter_kind {
  bool known = false;
  bool string = false, null = false, boolean = false, number = false, list = false, object = false;

  bool admits_string() const { return !known || string; }
  /// Plain text is the string itself, whatever it looks like.
  bool is_string_only() const { return known && string && !null && !boolean && !number && !list && !object; }
  /// Whether a JSON value that begins so may be meant; a quote is part of a string that is known to be plain text.
  bool admits(char first) const;
};

/// `left`: choices and references of the document that may still be followed; a type that takes more is not known.
parameter_kind kind_of_schema(json::value document, json::value schema, int& left);

} // namespace troupe
