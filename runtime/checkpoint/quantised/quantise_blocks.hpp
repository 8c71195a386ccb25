// Converts f32 weights to stored formats: GGUF's blocks, f16 or bf16. For programs that write checkpoints. Any thread.
#pragma once

#include "kernels/formats/weight_format.hpp"

#include <cstddef>

namespace troupe {

/// Whether `quantise_row` writes the format: all but fp8 and those that are only read.
bool can_be_written(kernels::weight_format format);

/// Writes row_bytes(format, cols) bytes; cols is a multiple of block_inputs(format). Scales and minima of formats with
/// fewer than 8 bits are searched for the least error. `importance` [cols] says how much a squared error of each input
/// counts, as the mean square of what it will be multiplied with; 0 stands for little; null: all count alike. Throws
/// failure(internal) for formats that cannot be written.
void quantise_row(kernels::weight_format format, const float* row, std::size_t cols, void* to,
                  const float* importance = nullptr);

} // namespace troupe
