// The types that a model is computed in, from the names that users write.
#pragma once

#include "runtime/execution/compute_options.hpp"
#include "runtime/execution/device.hpp"
#include "runtime/model/precision.hpp"

#include <string_view>

namespace troupe {

/// The shares in compute_options::sparsity: "0.9" or "0.9:0.3". Throws failure(bad_request).
mlp_sparsity parse_sparsity(std::string_view text);

/// The types that `names` stand for on a device. Throws failure(bad_request).
precision precision_of(const compute_options& names, const checkpoint& tensors, const device_capabilities& device);

} // namespace troupe
