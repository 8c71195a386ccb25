// Reads the options of tree search as clients of all interfaces give them, and finds those that contradict each other.
#pragma once

#include "runtime/sampling/sampling_params.hpp"

namespace troupe {

namespace sampling_fields {

inline constexpr int most_simulations = 1 << 16;
inline constexpr int most_branching = 64;
/// Bounds of what one search may cost: tokens that are generated, and tokens that its tree tells apart.
inline constexpr long most_search_tokens = 1 << 20, most_search_nodes = 1 << 18;

} // namespace sampling_fields

/// The part of sampling_params::validate() that concerns tree search: throws failure(bad_request) naming the field.
void check_search(const sampling_params& params);

} // namespace troupe
