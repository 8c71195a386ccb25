// Linear layers on the CPU: converts activations to the layout of the kernels and cuts the work into tasks. The sizes
// of tasks change no result.
#pragma once

#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/packed_matrix.hpp"
#include "kernels/cpu/sparse_words.hpp"
#include "kernels/cpu/target.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "kernels/ops.hpp"
#include "kernels/planned_steps.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::kernels {

/// Outputs of a task, at most.
inline constexpr std::size_t outputs_per_linear_task = 256;

/// Bytes of a core's L2 that tasks fill, if the caller asks for `wanted`; 0: ask the system.
std::size_t cache_for_tasks(std::size_t wanted);

/// A product of some rows with a packed matrix, and how it is cut into tasks.
struct linear_plan {
  linear_op op; // without activations, bias and output
  std::size_t panels = 0;
  std::size_t panel_columns = 0;
  std::size_t max_panels = 1; // of a task
  std::size_t row_tasks = 1;

  /// `count` panels of a task, cut at the last one, and the rows of one of `row_tasks`.
  linear_task task(std::size_t first_panel, std::size_t count, std::size_t row_task) const;

  /// Floats of the sums of a task with so many panels.
  std::size_t sums(std::size_t task_panels) const;

  /// Words of the arranged activations.
  std::size_t activation_words() const;
};

/// `cache`: of cache_for_tasks. Fills op.activation_block.
linear_plan plan_linear(const target& kernels, std::size_t cache, const packed_matrix& weights, std::size_t rows);

/// Whether a single row can be multiplied where it is.
bool used_in_place(const linear_op& op, const tensor& in);

/// Converts row `from` of `in` to row `row` of the op's activations at `words`: copied, widened, or quantised to int8,
/// where a partial last group is filled with zeros.
void arrange_row(const target& kernels, const linear_op& op, std::uint32_t* words, std::size_t row, const tensor& in,
                 std::size_t from);

/// Bytes of scratch that products of such steps reserve at most, grouped ones included.
std::size_t linear_scratch_bytes(const target& kernels, std::size_t cache, int threads, const planned_steps& steps);

class cpu_linear {
public:
  /// `cache`: bytes of a core's L2 that tasks fill; 0: ask the system.
  cpu_linear(const target& kernels, thread_pool& pool, std::size_t cache);

  /// See backend::linear and backend::linear_activated. `addends`: of the rows, from the place of output 0 on; or null.
  void run(const tensor& out, const tensor& in, const packed_matrix& weights, const float* bias, store how,
           const activation& act = {}, const row_addend* addends = nullptr, std::size_t first_addend = 0);

  std::size_t cache() const { return cache_; }

  /// See activation_sparsity.
  void drop_smallest(const tensor& x, float share, const packed_matrix& w) { sparse_.drop_smallest(x, share, w); }
  std::size_t skipped_bytes() const { return skipped_bytes_; }

private:
  /// Lets the op skip words of K that are zero in all rows, if they are many enough to gain by it; else false.
  bool keep_nonzero(linear_op& op, const tensor& in, const packed_matrix& weights);

  const target& kernels_;
  thread_pool& pool_;
  std::size_t cache_; // bytes of L2
  sparse_words sparse_;
  std::size_t skipped_bytes_ = 0;
  scratch<std::uint32_t> activations_;
  std::vector<scratch<float>> scratch_; // one per thread
};

} // namespace troupe::kernels
