// Decisions of `troupe serve` that tests check.
#pragma once

#include "runtime/engine/engine_options.hpp"

#include <string>

namespace troupe::cli {

/// Whether a server on `host`, an address or a name, is reachable only from this machine.
bool is_loopback(const std::string& host);

/// The warning that results on this device depend on the schedule; empty if they do not.
std::string schedule_warning(const model_info& model);

} // namespace troupe::cli
