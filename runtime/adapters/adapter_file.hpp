// Reads an adapter with what its file says that is not kept. For adapter_library.
#pragma once

#include "runtime/adapters/adapter.hpp"

#include <string>

namespace troupe {

/// Reads an adapter as `read_adapter` of adapter.hpp does, and appends a line for the log for each setting that has no
/// effect, such as a module to save that the file does not save. A module that it does save is refused.
adapter_weights read_adapter(const std::filesystem::path& path, const adapter_target& target,
                             std::vector<std::string>& remarks);

} // namespace troupe
