// Packs stored rows into the panels of a packed_matrix, whose layouts target.hpp describes.
#pragma once

#include "kernels/cpu/packed_matrix.hpp"

namespace troupe::kernels {

/// Bytes of a panel. `kind`, `pruned` and `words` of the matrix must be set.
std::size_t panel_bytes(const packed_matrix& m);

/// Fills `to.data`, whose shape is that of `shape_matrices`.
void fill_panels(packed_matrix& to, std::span<const stored_matrix> stacked, const target& kernels, thread_pool& pool);

} // namespace troupe::kernels
