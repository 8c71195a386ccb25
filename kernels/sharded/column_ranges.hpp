// Divides the outputs of a matrix (its columns in a product) among ranks: each rank gets neighbouring ones, in order.
#pragma once

#include "kernels/ops.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace troupe::kernels {

/// Outputs of a rank's range are a multiple of this many, except the last one's. Panels of kernels have 64 or 32: a
/// half one more costs no time, as some rank would have the whole.
inline constexpr std::size_t column_unit = 32;

struct column_range {
  std::size_t first = 0, count = 0;
};

/// Range `rank` of `ranks`, as even as multiples of `unit` can be. The first ones have more, and those of a small
/// matrix have it all.
column_range columns_of(std::size_t outputs, std::size_t rank, std::size_t ranks, std::size_t unit);

/// The rows of stacked matrices that make these outputs. `gated`: of gate, then of up. Data may be null.
std::vector<stored_matrix> cut_stack(std::span<const stored_matrix> stacked, column_range range, bool gated);

/// Outputs of the stack. Throws std::invalid_argument if gate and up have different ones.
std::size_t outputs_of(std::span<const stored_matrix> stacked, bool gated);

/// A tensor's columns of this range.
inline tensor columns_of(const tensor& of, column_range range) {
  return {static_cast<char*>(of.data) + range.first * size_of(of.type), of.type, of.rows, range.count, of.stride};
}

} // namespace troupe::kernels
