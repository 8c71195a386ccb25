// NVIDIA GPUs, whose support is a plug-in: troupe-cuda.so, loaded when a GPU is first asked for and a driver is there.
#pragma once

#include "runtime/execution/compute_options.hpp"

namespace troupe {

/// A gpu_opener. Throws failure(bad_request) where there is no such GPU or no driver, device_error where there is a
/// driver and the plug-in is missing or cannot be used. Any thread.
std::shared_ptr<const device> open_gpu_plugin(const gpu_options& options);

} // namespace troupe
