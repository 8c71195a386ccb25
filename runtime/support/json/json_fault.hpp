// Where a text stops being JSON, for error messages: simdjson tells what is wrong, but not where. Pure function.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace troupe::json {

struct fault {
  std::size_t at = 0;       // the first byte that no JSON text (RFC 8259) can have there; its size if more must follow
  bool half_a_pair = false; // a \u escape of half a character: those beyond 16 bits are two, and one is missing
};

/// Nothing if the text is JSON. Linear in its length.
std::optional<fault> find_fault(std::string_view text);

/// The line, from 1, of the first byte that no JSON text (RFC 8259) can have there; that of the end if more must
/// follow.
/// 0 if the text is JSON. Linear in its length.
std::size_t line_of_fault(std::string_view text);

} // namespace troupe::json
