// Reads an adapter with what its file says that is not kept. For adapter_library.
#pragma once

#include "runtime/adapters/adapter.hpp"

#include <string>

namespace troupe {

/// As `read_adapter` of adapter.hpp. Appends a line for the log for each setting that has no effect, such as modules to
/// save of which the file saves none; those that it does save are refused.
adapter_weights read_adapter(const std::filesystem::path& path, const adapter_target& target,
                             std::vector<std::string>& remarks);

} // namespace troupe
