// Numbers of bytes as people read them.
#pragma once

#include <cstddef>
#include <string>

namespace troupe {

/// "1.5 GiB".
std::string to_size(std::size_t bytes);

} // namespace troupe
