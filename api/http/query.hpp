// Parameters of a request's query, "?limit=3&after=x". Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace troupe {

/// The first of this name, as it stands there: it may be percent-encoded.
std::optional<std::string_view> query_parameter(std::string_view query, std::string_view name);

/// `limit`, an integer from 1 to `most`. Throws failure(bad_request) that names it.
std::size_t query_limit(std::string_view query, std::size_t usual, std::size_t most);

} // namespace troupe
