// Says how many sequences a request needs at once, and why it fails if it cannot have them. So those who run sequences
// need not know the parameters that ask for several.
#pragma once

#include "runtime/sampling/sampling_params.hpp"
#include "runtime/support/error.hpp"

#include <optional>

namespace troupe {

/// Why the request can never run where at most so many sequences run at once.
std::optional<error> too_many_sequences(const sampling_params& params, int most);

/// Why sequences that are judged together cannot run, if they need more blocks than there are.
error too_many_blocks(const sampling_params& params);

} // namespace troupe
