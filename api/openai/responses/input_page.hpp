// A page of the input items of a stored response. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace troupe {

/// {"object":"list","data","first_id","last_id","has_more"} of `items`, a JSON list. `query`: of the URL, or empty:
/// `limit` (1 to 100, default 20), `order` ("desc", the default, or "asc") and `after`, an id; others are ignored.
/// Throws failure naming the parameter.
std::string input_page(std::string_view items, std::string_view query);

} // namespace troupe
