// Validates engine_options by themselves, before anything is opened.
#pragma once

#include "runtime/engine/engine_options.hpp"

namespace troupe {

/// Throws failure(bad_request) that names the option.
void check_options(const engine_options& options);

} // namespace troupe
