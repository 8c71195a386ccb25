// The types that a model is computed in, from the names that users write.
#pragma once

#include "runtime/execution/compute_options.hpp"
#include "runtime/execution/device.hpp"
#include "runtime/model/precision.hpp"

namespace troupe {

/// The types that `names` stand for on a device. Throws failure(bad_request).
precision precision_of(const compute_options& names, const checkpoint& tensors, const device_capabilities& device);

} // namespace troupe
