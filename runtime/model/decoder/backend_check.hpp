// Whether a backend has what a model computes. Called ahead of anything that takes memory.
#pragma once

#include "kernels/ops.hpp"
#include "runtime/model/model_config.hpp"

namespace troupe {

/// Refuses models that need ops which the backend lacks: throws failure(unsupported).
void check_backend(const model_config& config, const kernels::backend& backend);

} // namespace troupe
