// Grouped products on the CPU: one loop of tasks for the matrices of all groups, so that threads wait once, and every
// weight is read once. The sizes of tasks change no result.
#pragma once

#include "kernels/cpu/linear.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe::kernels {

class cpu_grouped_linear {
public:
  /// `cache`: bytes of a core's L2 that tasks fill; 0: ask the system.
  cpu_grouped_linear(const target& kernels, thread_pool& pool, std::size_t cache);

  /// See backend::grouped_activated. Tasks are columns of one group.
  void activated(const tensor& out, const tensor& in, std::span<const row_group> groups, const activation& act,
                 bool gated);

  /// See backend::grouped_sum. Tasks are columns of all groups, taken in order: no two write to the same sums.
  void sum(const tensor& to, const tensor& in, std::span<const row_group> groups, store how);

private:
  /// The product of one group.
  struct product {
    linear_plan plan;
    std::uint32_t* activations = nullptr; // or null: the row is used in place, or shared
  };

  /// Row `row` of a product is row `from` of the input.
  struct source_row {
    std::size_t product = 0, row = 0, from = 0;
  };

  /// Panels of one product, for the rows of one of its row tasks.
  struct task {
    std::size_t product = 0, first_panel = 0, panels = 0, row_task = 0;
  };

  /// Plans the leading groups whose matrices are of one kind, usually all. Returns how many.
  std::size_t plan(const tensor& in, std::span<const row_group> groups);

  /// Arranges the activations of the planned products, whose rows are `rows_`.
  void arrange(const tensor& in);

  /// Arranges int8 activations, whose rows have several groups. Each row is quantised once.
  void arrange_shared(const tensor& in);

  /// Makes room for the activations of all products that have none yet.
  void reserve_activations();

  /// Panels of a task of `all`, so that threads finish together.
  std::size_t fair_panels(std::size_t all, std::size_t most) const;

  const target& kernels_;
  thread_pool& pool_;
  std::size_t cache_; // bytes of L2
  // State of the current call. Members, so that steps allocate nothing.
  std::vector<product> products_;
  std::vector<source_row> rows_;
  std::vector<task> tasks_;
  scratch<std::uint32_t> activations_, shared_;
  std::vector<scratch<float>> scratch_; // one per thread
};

} // namespace troupe::kernels
