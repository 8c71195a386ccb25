// GPU support of this program, if it was built with any.
#pragma once

#include "runtime/execution/compute_options.hpp"

namespace troupe {

/// Null in builds without CUDA.
gpu_opener built_in_gpus();

} // namespace troupe
