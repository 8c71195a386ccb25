// Reads and writes rows of which 2 of every 4 weights are stored. Exact; any thread.
#pragma once

#include "kernels/formats/weight_format.hpp"

#include <cstddef>

namespace troupe::kernels {

/// The two of four consecutive weights that are stored.
struct kept_pair {
  float first = 0, second = 0;
  int first_place = 0, second_place = 1; // among the four, ascending
};

/// The kept pair of the weights 4 * `four` to 4 * `four` + 3 of a row. The row may be unaligned.
kept_pair pruned_pair(weight_format f, const void* row, std::size_t four);

/// Writes the pair to its place in a row; values that `f` holds exactly. The places must be zero before.
void store_pruned_pair(weight_format f, void* row, std::size_t four, const kept_pair& pair);

/// All weights of a row from input `first` on, zeros included; both are multiples of 4.
void expand_pruned(weight_format f, const void* row, std::size_t first, std::size_t count, float* weights);

} // namespace troupe::kernels
