// An NVIDIA GPU as a device that models run on. The driver is found at run time; without one there is simply no such
// device.
#pragma once

#include "runtime/execution/device.hpp"

namespace troupe {

/// Throws failure(bad_request) that says which GPUs there are, or why there is none, if there is no such GPU.
std::shared_ptr<const device> open_gpu(const gpu_options& options);

} // namespace troupe
