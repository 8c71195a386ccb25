// Whether a backend has what a model computes, and whether a part of a model can be computed by itself. Called ahead of anything that takes memory.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/model/model_config.hpp"

#include <string>

namespace troupe {

/// Refuses models that need ops which the backend lacks: throws failure(unsupported).
void check_backend(const model_config& config, const kernels::backend& backend);

/// Why the part of a model that config.span describes cannot be computed by itself; empty: it can.
std::string why_undivided(const model_config& config);

} // namespace troupe
