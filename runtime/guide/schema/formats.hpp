// The formats of JSON Schema that can be enforced, as regular expressions.
#pragma once

#include <optional>
#include <string_view>

namespace troupe::guides {

/// The pattern (regex/pattern.hpp) that a string of the format matches as a whole; nothing for an unknown format,
/// which is an annotation.
std::optional<std::string_view> format_pattern(std::string_view name);
/// Whether strings that do not match may be of the format all the same.
bool format_has_more(std::string_view name);

} // namespace troupe::guides
