// A value as messages show it. Pure.
#pragma once

#include "runtime/support/json/json_fwd.hpp"

#include <cstddef>
#include <string>

namespace troupe {

/// Its JSON without white space; of more than so many bytes the beginning in whole characters.
std::string json_brief(json::value v, std::size_t most = 40);

} // namespace troupe
