// The leaves of the JSON that the server writes. Objects of the hot path are put together by hand around them, for a
// token's event is mostly the same text every time. Pure functions.
#pragma once

#include "runtime/support/types.hpp"

#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// `text` (valid UTF-8) as a JSON string, quotes included.
std::string json_text(std::string_view text);

/// Never NaN nor infinite, which JSON cannot say: minus infinity becomes -9999.
std::string json_logprob(float value);

/// Milliseconds and other measurements.
std::string json_number(double value);

/// "[1,2,3]"
std::string json_ids(std::span<const token_id> ids);

} // namespace troupe
