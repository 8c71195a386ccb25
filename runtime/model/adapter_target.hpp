// Which matrices of a model take low-rank adapters.
#pragma once

#include "runtime/adapters/adapter.hpp"
#include "runtime/model/model_config.hpp"

namespace troupe {

/// Attention and dense MLPs; experts take none.
adapter_target adapter_target_of(const model_config& config);

} // namespace troupe
