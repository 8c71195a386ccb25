// What `troupe serve` decides before it listens, and says of the model that it has loaded.
#pragma once

#include "runtime/engine/engine_options.hpp"

#include <string>

namespace troupe::cli {

/// Whether a server on `host`, an address or a name, can be reached from this machine alone.
bool is_loopback(const std::string& host);

/// That results on this device depend on what else runs, and what to do about it; empty where they do not.
std::string schedule_warning(const model_info& model);

} // namespace troupe::cli
