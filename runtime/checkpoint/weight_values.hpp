// Converts stored weights to f32: for vectors, which are not packed, and for programs that write checkpoints. Any
// thread.
#pragma once

#include "kernels/formats/weight_format.hpp"

#include <cstddef>

namespace troupe {

/// Writes the f32 values of a row of `cols` weights, a multiple of block_inputs(format). The row may be unaligned.
void to_floats(kernels::weight_format format, const void* row, std::size_t cols, float* out);

/// The nearest number that a float format holds.
float rounded_to(kernels::weight_format format, float value);

} // namespace troupe
