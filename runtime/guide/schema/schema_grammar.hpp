// JSON Schemas as grammars.
#pragma once

#include "runtime/guide/grammar/grammar.hpp"

#include <string_view>

namespace troupe::guides {

struct json_style {
  bool any_order = false; // members in any order, rather than the schema's with unnamed ones last
  bool compact = false;   // no white space
  bool closed = false;    // guide_source::closed
  bool distinct = false;  // no name comes twice in an object, also where the schema does not count them
};

/// Adds the rules of the JSON values that meet the schema; the rule of such a value. Throws failure(bad_request).
rule_id add_schema(grammar& g, std::string_view schema, const json_style& style, const guide_limits& limits);

} // namespace troupe::guides
