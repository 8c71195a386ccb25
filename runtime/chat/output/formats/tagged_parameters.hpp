// How constraints write the parameters of calls whose arguments are texts between tags. Pure.
#pragma once

#include "runtime/chat/output/chat_output.hpp"

#include <string>
#include <string_view>

namespace troupe {

struct value_tags {
  std::string_view call_begin, name_begin, name_end;
  std::string_view key_begin, key_end, value_begin, value_end;
  std::string_view call_end, last_end; // `last_end` follows `call_end`, or is empty
  std::string_view padding;            // around the values; not part of them
  bool several = false;                // calls between `call_begin` and `last_end`
};

/// The parameters as a format of structural tags in JSON: in the schema's order, each at most once, and behind them
/// others with any text, unless the schema admits none. What these formats cannot enforce is free text; throws
/// failure(bad_request) instead where the tool is `strict`.
std::string tagged_parameters(const offered_tool& tool, const value_tags& tags);

} // namespace troupe
