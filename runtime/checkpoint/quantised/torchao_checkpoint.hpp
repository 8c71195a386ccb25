// Checkpoints that transformers saved with torchao's quantisation as safetensors: `Int8Tensor`, `Int4Tensor` (plain
// packing), `IntxUnpackedToInt8Tensor` and `Float8Tensor`. Used by open_quantised.
// Format: `prototype/safetensors` and `quantization/quantize_/workflows` of https://github.com/pytorch/ao.
#pragma once

#include "runtime/checkpoint/checkpoint.hpp"

#include <memory>

namespace troupe {

/// `X._weight_qdata` with `X._weight_scale` becomes `X.weight`: codes in Q8_0, Q4_0 or Q4_1 (scales and minima rounded
/// to f16), E4M3 as fp8. Other layouts, which are made for one GPU's kernels, are refused. Throws failure(bad_file |
/// unsupported) that names the file and the tensor.
std::unique_ptr<const checkpoint> open_torchao(std::unique_ptr<const checkpoint> stored);

} // namespace troupe
