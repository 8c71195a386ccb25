// Integers as clients write them. Pure.
#pragma once

#include "runtime/support/json/json.hpp"

#include <cstdint>
#include <optional>

namespace troupe::json {

/// An integer, also one that is written as 40.0 or 4e1, as some clients do; nothing if it is another value.
std::optional<std::int64_t> whole_number(value v);

} // namespace troupe::json
