// Weights in the layout of the CPU kernels: panels of outputs. Floats are [panel][words of K][panel_outputs];
// target.hpp describes the layouts of codes. Immutable once packed.
#pragma once

#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/target.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "kernels/ops.hpp"

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

namespace troupe::kernels {

/// Version of the bytes that `pack_matrices` makes of given weights, over all targets. Raise it with every change of
/// layout (packed_layout_test fails until then): files that keep packed weights are then rebuilt.
inline constexpr int packed_layout_version = 5;

class packed_matrix : public matrix {
public:
  weight_kind kind = weight_kind::f32;
  dtype compute = dtype::f32;
  bool gated = false;          // gate and up interleaved; `outputs` counts those of one
  bool pruned = false;         // 2 of every 4 inputs are stored
  std::size_t words = 0;       // of K; groups if quantised
  std::size_t scale_words = 0; // words that share scales, of fp8
  std::size_t panels = 0;

  bool quantised() const { return is_grouped(kind); }
  /// Columns of a panel: outputs, or gate's and up's.
  std::size_t panel_columns() const { return quantised() ? quantised_panel_outputs : panel_outputs; }

  /// Whether float weights are finite, so that times 0 they give 0. The first call reads them all; any thread.
  bool finite(thread_pool& pool) const;

  buffer data;

private:
  enum class finiteness : std::uint8_t { unknown, finite, not_finite };
  mutable std::atomic<finiteness> finiteness_ = finiteness::unknown;
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

/// The kind that keeps a stored matrix's blocks or codes exactly, or that its floats are quantised to. Nothing if it
/// stays floats. fp8: or fp8_pairs, which depends on the target.
std::optional<weight_kind> quantised_kind(const stored_matrix& m, quantization how);

/// Stacks matrices along the outputs. `gated`: gate and up, interleaved by half panels. Matrices that do not share a
/// quantised kind become floats, without rounding them to it. Throws std::invalid_argument if their inputs differ or `compute` is f16.
std::unique_ptr<packed_matrix> pack_matrices(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                                             bool gated, const target& kernels, thread_pool& pool,
                                             weight_memory& memory);

/// Describes what `pack_matrices` would make, without the weights: `data` is null, and that of `stacked` may be.
std::unique_ptr<packed_matrix> shape_matrices(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                                              bool gated, const target& kernels);

/// Stacks matrices along the outputs, packing neighbours of the same kind as one. Returns a packed_matrix, or a
/// matrix_stack of several. `gated` and errors: see `pack_matrices`.
std::unique_ptr<matrix> pack_stack(std::span<const stored_matrix> stacked, dtype compute, quantization how, bool gated,
                                   const target& kernels, thread_pool& pool, weight_memory& memory);

/// Describes what `pack_stack` would make, without the weights: see `shape_matrices`.
std::unique_ptr<matrix> shape_stack(std::span<const stored_matrix> stacked, dtype compute, quantization how, bool gated,
                                    const target& kernels);

/// The parts of a matrix made by `pack_stack` or `shape_stack`. Throws std::invalid_argument for other matrices.
std::vector<const packed_matrix*> parts_of(const matrix& packed);

/// The memory of a matrix made by `pack_stack`, in parts, each a multiple of 64 bytes. Throws std::invalid_argument for
/// other matrices.
std::vector<std::span<const std::byte>> bytes_of_stack(const matrix& packed);

/// The matrix that `pack_stack` made, from its parts: one after another in `bytes`, which it shares.
std::unique_ptr<matrix> restore_stack(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                                      bool gated, const target& kernels, const buffer& bytes);

/// The kind that holds floats of this type as they are.
constexpr weight_kind exact_kind(dtype stored) { return traits_of(format_of(stored)).on_cpu; }

} // namespace troupe::kernels
