// The formats of JSON Schema that can be enforced, as regular expressions.
#pragma once

#include <optional>
#include <string_view>

namespace troupe::guides {

/// The pattern (regex/pattern.hpp) that a string of the format matches as a whole; nothing for an unknown format,
/// which is an annotation. `standard_but_refused` tells a format of the standard that is not regular, or not supported.
std::optional<std::string_view> format_pattern(std::string_view name);
bool standard_but_refused(std::string_view name);

} // namespace troupe::guides
