// Quantises many groups of weights at once, for packing at load; called on any thread.
#pragma once

#include "kernels/formats/weight_format.hpp"

namespace troupe::kernels {

/// What quantise_int4 makes of each of `groups` groups, [groups][32], bit for bit, in less time.
void quantise_int4(const float* weights, std::size_t groups, weight_group* to);

} // namespace troupe::kernels
