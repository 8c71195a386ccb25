// Products with the matrices of several groups of rows (backend::grouped_activated, grouped_sum), one group at a time:
// gathers the group's rows, multiplies them as any others, and adds the results where they belong. Owned by a backend,
// used by its thread on its stream.
#pragma once

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/device_scratch.hpp"

#include <span>
#include <vector>

namespace troupe::kernels::cuda {

/// Whether the rows are all of so many, in order.
bool are_all(std::span<const std::int32_t> rows, std::size_t count);

class grouped_products {
public:
  /// `products`: what multiplies.
  explicit grouped_products(cuda_backend& products) : products_(products) {}

  void activated(const tensor& out, const tensor& in, std::span<const row_group> groups, const activation& act,
                 bool gated);
  void sum(const tensor& to, const tensor& in, std::span<const row_group> groups, store how);

  /// How often scratch memory has moved.
  std::uint64_t growths() const { return gathered_.growths() + sums_.growths() + rows_.growths() + factors_.growths(); }

  /// Bytes of scratch for groups of at most `rows` rows of `inputs` and `outputs` columns, `chosen` times as many in
  /// all.
  static std::size_t scratch_bytes(std::size_t rows, std::size_t chosen, std::size_t inputs, std::size_t outputs);

private:
  cuda_backend& products_;
  device_scratch gathered_, sums_, rows_, factors_;
  std::vector<std::int32_t> all_rows_;
  std::vector<float> all_factors_;
};

} // namespace troupe::kernels::cuda
