// What `troupe serve` says of the model that it has loaded.
#pragma once

#include "runtime/engine_options.hpp"

#include <string>

namespace troupe::cli {

/// That results on this device depend on what else runs, and what to do about it; empty where they do not.
std::string schedule_warning(const model_info& model);

} // namespace troupe::cli
