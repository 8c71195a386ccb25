// Rows of gaussian_gates, one at a time, summed in the order of their elements.
#pragma once

#include <cstddef>

namespace troupe::kernels {

float mean_square(const float* x, std::size_t n);

/// Writes f32, to the place of `gate` if need be.
void gate_gaussian_row(float* out, const float* gate, const float* up, std::size_t n, float deviations);

} // namespace troupe::kernels
