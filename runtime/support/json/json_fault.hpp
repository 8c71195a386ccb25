// Where a text stops being JSON, for error messages: simdjson tells what is wrong, but not where. Pure function.
#pragma once

#include <cstddef>
#include <string_view>

namespace troupe::json {

/// The line, from 1, of the first byte that no JSON text (RFC 8259) can have there; that of the end if more must
/// follow.
/// 0 if the text is JSON. Linear in its length.
std::size_t line_of_fault(std::string_view text);

} // namespace troupe::json
