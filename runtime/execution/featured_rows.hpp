// The rows of a plan that a runner treats in a special way, feature by feature (runtime/scheduling/row_features.hpp).
#pragma once

#include "runtime/scheduling/step.hpp"
#include "runtime/techniques/layer_hook.hpp"
#include "runtime/techniques/products.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

/// The hooks of techniques that change rows of the plan, in the order of their names. They live as long as the plan.
std::vector<layer_hook> row_hooks(const step_plan& plan, kernels::backend& backend, float embedding_scale);

/// The rows to whose products techniques add.
std::vector<added_rows> added_rows_of(const step_plan& plan);

} // namespace troupe
