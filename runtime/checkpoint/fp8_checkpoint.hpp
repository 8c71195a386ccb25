// Checkpoints whose matrices are stored in FP8: `X.weight` in F8_E4M3 and `X.weight_scale`, one number or one for each
// output, as compressed-tensors, fbgemm and AutoFP8 write them. Seen as matrices of kernels' fp8 rows, codes and scales as
// they are. Used by open_quantised.
#pragma once

#include "runtime/checkpoint/checkpoint.hpp"

#include <memory>

namespace troupe {

/// Scales of activations (`X.input_scale`) are not used: each row of activations gets its own, or none at all. Other
/// tensors are as they were. Throws failure(bad_file | unsupported) naming the file and the tensor.
std::unique_ptr<const checkpoint> open_fp8(std::unique_ptr<const checkpoint> stored);

} // namespace troupe
