// Converts f32 weights to stored formats: GGUF's blocks, f16 or bf16. For programs that write checkpoints. Any thread.
#pragma once

#include "kernels/formats/weight_format.hpp"

#include <cstddef>

namespace troupe {

/// Writes row_bytes(format, cols) bytes. `format`: f32, f16, bf16, q8_0, q4_0 or q4_1; cols a multiple of
/// block_inputs(format). Scales and minima of 4-bit formats are searched for the least squared error. Throws
/// failure(internal) for other formats.
void quantise_row(kernels::weight_format format, const float* row, std::size_t cols, void* to);

} // namespace troupe
