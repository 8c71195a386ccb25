// Checkpoints with matrices in FP8: `X.weight` in F8_E4M3 and `X.weight_scale`, one number or one per output, as
// compressed-tensors, fbgemm and AutoFP8 write them. Presented as rows in the kernels' fp8 format, with unchanged codes
// and scales. Used by open_quantised.
#pragma once

#include "runtime/checkpoint/checkpoint.hpp"

#include <memory>

namespace troupe {

/// Scales of activations (`X.input_scale`) are ignored: each row of activations gets its own scale, or none. Other
/// tensors are unchanged. Throws failure(bad_file | unsupported) naming the file and the tensor.
std::unique_ptr<const checkpoint> open_fp8(std::unique_ptr<const checkpoint> stored);

} // namespace troupe
