// Writes stored blocks from groups of 32 inputs: the inverse of weight_groups.hpp. For programs that write checkpoints.
// Any thread.
#pragma once

#include "kernels/formats/weight_groups.hpp"

namespace troupe::kernels {

/// Writes the block that `stored_group` reads as `groups`, block_inputs(f) / 32 of them. Codes, scales and minima are
/// within what `f` can hold, as `stored_group` gives them; of factors of a whole block those of the first group count.
/// `f` has groups and is not only read.
void store_groups(weight_format f, const weight_group* groups, std::uint8_t* block);

} // namespace troupe::kernels
