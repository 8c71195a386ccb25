// Checkpoints that transformers saved with bitsandbytes' quantisation: LLM.int8, and NF4 or FP4 with scales of blocks,
// which may be quantised themselves. Used by open_quantised.
// Format: `QuantState` and `Linear8bitLt` of https://github.com/bitsandbytes-foundation/bitsandbytes.
#pragma once

#include "runtime/checkpoint/checkpoint.hpp"

#include <memory>

namespace troupe {

/// `X.weight` in I8 with `X.SCB` is presented in Q8_0, with scales rounded to f16; packed 4-bit codes with `.absmax`,
/// `.quant_map` and `.quant_state.*` in the type that the quantisation began with, as transformers expands them. Throws
/// failure(bad_file | unsupported) that names the file and the tensor.
std::unique_ptr<const checkpoint> open_bitsandbytes(std::unique_ptr<const checkpoint> stored);

} // namespace troupe
