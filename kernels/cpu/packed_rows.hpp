// Reads rows of packed matrices as floats. An embedding table is read so from the packed head, so that a head that is
// the embedding matrix is in memory once.
#pragma once

#include "kernels/cpu/packed_matrix.hpp"

#include <cstddef>

namespace troupe::kernels {

/// A table of the rows of a packed matrix, which outlives it. Takes no memory of its own.
class packed_table : public matrix {
public:
  const packed_matrix* from = nullptr;
};

/// Whether the packed form of a matrix has its stored values, bit for bit. (In fp8 a NaN makes NaN of its whole row.)
bool is_kept_exactly(const stored_matrix& m, const packed_matrix& packed);

/// The values of `count` inputs of output `row` from `first` on, both multiples of 32 if the matrix is quantised. Bit
/// for bit those of `expand` for a matrix that is kept exactly. Not for gated matrices.
void expand_packed_row(const packed_matrix& m, std::size_t row, std::size_t first, std::size_t count, float* to);

} // namespace troupe::kernels
