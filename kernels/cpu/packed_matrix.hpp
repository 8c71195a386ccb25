// Weights in the layout of the CPU kernels: panels of outputs, floats as [panel][words of K][panel_outputs], quantised
// ones as target.hpp says. Immutable once packed.
#pragma once

#include "kernels/cpu/target.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "kernels/ops.hpp"

#include <optional>
#include <vector>

namespace troupe::kernels {

/// Of the bytes that `pack_matrices` makes of given weights, on all targets: to be raised with every change of them, which
/// packed_layout_test notices. Files that keep packed weights are then made anew.
inline constexpr int packed_layout_version = 2;

class packed_matrix : public matrix {
public:
  weight_kind kind = weight_kind::f32;
  dtype compute = dtype::f32;
  bool gated = false;    // outputs = those of gate = those of up
  std::size_t words = 0; // of K; quantised: groups
  std::size_t panels = 0;

  bool quantised() const { return is_grouped(kind); }
  /// Columns of a panel: outputs, or gate's and up's.
  std::size_t panel_columns() const { return quantised() ? quantised_panel_outputs : panel_outputs; }
  buffer data;
};

/// Matrices of different kinds, stacked along the outputs.
class matrix_stack : public matrix {
public:
  std::vector<std::unique_ptr<packed_matrix>> parts;
};

/// A table that `embed` gathers from, in the caller's memory.
class host_table : public matrix {
public:
  stored_matrix stored;
};

/// The kind that keeps a stored matrix's blocks exactly, or that its floats are quantised to; none: it stays in floats.
std::optional<weight_kind> quantised_kind(const stored_matrix& m, quantization how);

/// Stacks matrices along the outputs. `gated`: gate and up, interleaved by half panels. Matrices that do not share a
/// quantised kind become floats. Throws std::invalid_argument where their inputs differ or `compute` is f16.
std::unique_ptr<packed_matrix> pack_matrices(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                                             bool gated, const target& kernels, thread_pool& pool);

/// The same without the weights: `data` is null, that of `stacked` may be.
std::unique_ptr<packed_matrix> shape_matrices(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                                              bool gated, const target& kernels);

/// Stacks matrices along the outputs, neighbours that share a kind as one: a packed_matrix, or a matrix_stack of several.
/// `gated`: as `pack_matrices`. Throws as that does.
std::unique_ptr<matrix> pack_stack(std::span<const stored_matrix> stacked, dtype compute, quantization how, bool gated,
                                   const target& kernels, thread_pool& pool);

/// What `pack_stack` makes takes as many bytes.
std::size_t stack_bytes(std::span<const stored_matrix> stacked, dtype compute, quantization how, bool gated,
                        const target& kernels);

/// What `pack_stack` made, in parts, each a multiple of 64 bytes. Throws std::invalid_argument where it made no such
/// matrix.
std::vector<std::span<const std::byte>> bytes_of_stack(const matrix& packed);

/// What `pack_stack` made, around those parts, one behind another in `bytes`.
std::unique_ptr<matrix> restore_stack(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                                      bool gated, const target& kernels, const buffer& bytes);

/// The kind that holds floats of this type as they are.
constexpr weight_kind exact_kind(dtype stored) { return traits_of(format_of(stored)).on_cpu; }

} // namespace troupe::kernels
