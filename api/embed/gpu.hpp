// Whether this program can use GPUs.
#pragma once

#include "runtime/execution/compute_options.hpp"

namespace troupe {

/// Null where it was built without CUDA.
gpu_opener built_in_gpus();

} // namespace troupe
