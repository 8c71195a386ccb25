// Checkpoints with experts in MXFP4, as gpt-oss' are: `X_blocks` [experts, rows, blocks, 16], two codes a byte, and
// `X_scales` [experts, rows, blocks], a power of two for 32 inputs (OCP Microscaling Formats 1.0). Each expert is
// presented as a matrix `X.N` of its own in bf16, which holds every value exactly. Used by open_quantised.
#pragma once

#include "runtime/checkpoint/checkpoint.hpp"

#include <memory>

namespace troupe {

/// Other tensors are unchanged. Throws failure(bad_file) naming the file and the tensor.
std::unique_ptr<const checkpoint> open_mxfp4(std::unique_ptr<const checkpoint> stored);

} // namespace troupe
