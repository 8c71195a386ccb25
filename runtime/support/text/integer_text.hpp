// Integers in texts that people write, such as flags. Pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace troupe {

/// An integer from `low` to `high`, without other characters. Throws failure(bad_request).
std::int64_t parse_integer(std::string_view text, std::int64_t low, std::int64_t high);

/// Integers separated by commas or white space. Throws failure(bad_request).
std::vector<std::int64_t> parse_integers(std::string_view text, std::int64_t low, std::int64_t high);

} // namespace troupe
