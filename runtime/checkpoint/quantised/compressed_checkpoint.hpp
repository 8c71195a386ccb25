// Checkpoints of compressed-tensors (llm-compressor, AutoRound) other than fp8's: packed integers (W4A16, W8A16), int8 (W8A8), FP4
// with scales in E4M3 (NVFP4) or powers of two (MXFP4), and weights of which 2 of 4 are stored. Used by open_quantised.
// Format: `compressors` of https://github.com/neuralmagic/compressed-tensors.
#pragma once

#include "runtime/checkpoint/checkpoint.hpp"

#include <memory>
#include <vector>

namespace troupe {

/// `X.weight_packed` with `.weight_scale` and `.weight_shape`, or in U8; `X.weight` in I8 with `.weight_scale`;
/// `X.weight` or `X` as `.compressed` with `.bitmask` and `.shape`. Each becomes `X.weight`: integers in Q4_0, Q4_1 or
/// Q8_0 (scales rounded to f16; as floats where inputs are not in the order of their groups), NVFP4 in f16, MXFP4 as it
/// is, floats of which 2 of 4 are stored as they are, where rows have a multiple of 8; int8 and fp8 of which 2 of 4 are
/// stored with the zeros. fp8 matrices are left for fp8_checkpoint.hpp. `code_bits`: what packed integers may have.
/// Throws failure(bad_file | unsupported) that names the file and the tensor.
std::unique_ptr<const checkpoint> open_compressed(std::unique_ptr<const checkpoint> stored,
                                                  const std::vector<int>& code_bits);

} // namespace troupe
