// The weights of a packed_matrix in panels: from stored rows to the layouts that target.hpp describes.
#pragma once

#include "kernels/cpu/packed_matrix.hpp"

namespace troupe::kernels {

/// Of a matrix with kind, `pruned` and `words`.
std::size_t panel_bytes(const packed_matrix& m);

/// Fills `to.data`, whose shape is that of `shape_matrices`.
void fill_panels(packed_matrix& to, std::span<const stored_matrix> stacked, const target& kernels, thread_pool& pool);

} // namespace troupe::kernels
