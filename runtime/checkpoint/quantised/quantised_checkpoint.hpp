// Checkpoints quantised by GPTQ (2, 3, 4 or 8 bits), AWQ (4) or AutoRound (2 to 8 in GPTQ's layout, 4 to 7 in AWQ's),
// presented as if their matrices were stored in GGUF's blocks. Those of other programs are passed to
// fp8_checkpoint.hpp, mxfp4_checkpoint.hpp, bitsandbytes_checkpoint.hpp, compressed_checkpoint.hpp, hqq_checkpoint.hpp
// and torchao_checkpoint.hpp. Used by open_model.
// Formats: `qlinear` of AutoGPTQ (https://github.com/AutoGPTQ/AutoGPTQ), `WQLinear_GEMM` of AutoAWQ
// (https://github.com/casper-hansen/AutoAWQ), `auto_round_extension/torch` of AutoRound
// (https://github.com/intel/auto-round).
#pragma once

#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/checkpoint/quantised/quantised_storage.hpp"

#include <memory>

namespace troupe {

/// Each `X.qweight`, with `X.qzeros`, `X.scales` and optionally `X.g_idx`, becomes `X.weight`: in Q4_0, or Q8_0 with
/// more than 4 bits, if every zero point is in the middle, which is exact; else, with up to 4, in Q4_1, whose minimum is
/// scale * zero rounded to f16 (an error of at most 1/136 of the distance between two codes). If inputs are not in the
/// order of their groups (`desc_act`), groups do not consist of whole blocks, or more than 4 bits have other zero points,
/// weights are expanded to f16. Other tensors are unchanged. Throws failure(bad_file | unsupported) naming the file and
/// the tensor.
std::unique_ptr<const checkpoint> open_quantised(std::unique_ptr<const checkpoint> stored,
                                                 const quantised_storage& how);

} // namespace troupe
