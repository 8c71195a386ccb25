// An NVIDIA GPU as a device that models run on. What it needs of a driver is found at run time: without one, there is no
// such device, and that is all.
#pragma once

#include "runtime/execution/device.hpp"

namespace troupe {

/// Throws failure(bad_request), naming how many there are, where there is no such GPU.
std::shared_ptr<const device> open_gpu(const gpu_options& options);

} // namespace troupe
