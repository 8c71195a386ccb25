// Fits stored blocks to weights: which scales, minima and codes of a format come closest to them, where an error counts
// by how much its input matters. Deterministic; any thread.
#pragma once

#include "kernels/formats/weight_groups.hpp"

#include <cstdint>

namespace troupe {

/// Fits one block of `format`, which has groups and is not only read, to its block_inputs(format) `weights`. Minimises the
/// sum of importance * error^2; all importances are finite and positive. Weights that are not finite give a block of
/// NaN. `groups`: block_inputs(format) / 32.
void fit_block(kernels::weight_format format, const float* weights, const float* importance,
               kernels::weight_group* groups);

/// The code of input `input` of a group of `format` whose weight is closest to `weight`.
std::uint8_t nearest_code(kernels::weight_format format, const kernels::weight_group& group, std::size_t input,
                          float weight);

/// The weight of an input of a group.
float weight_of(const kernels::weight_group& group, std::size_t input);

} // namespace troupe
