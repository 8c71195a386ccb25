// Percent-encoding of URLs. Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace troupe {

/// The bytes that a part of a URL stands for. A text that is not well encoded ("50%") is taken as it is.
std::string percent_decoded(std::string_view text);

} // namespace troupe
