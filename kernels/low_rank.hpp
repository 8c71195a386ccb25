// Adds products with pairs of low-rank matrices (adapters) to single rows of a product, before the activation. An
// optional interface of backends, beside `backend`.
#pragma once

#include "kernels/ops.hpp"

namespace troupe::kernels {

/// What is added to some of a product's outputs: in · aᵀ · bᵀ.
struct low_rank_pair {
  std::size_t first_output = 0, outputs = 0, rank = 0;
  const float* a = nullptr; // [rank, inputs]
  const float* b = nullptr; // [outputs, rank]
};

class low_rank_products {
public:
  virtual ~low_rank_products() = default;

  /// Pairs for a product of so many inputs and outputs (`gated`: gate's and then up's), in ascending order of outputs,
  /// none twice. Values are rounded to `compute`, f32 or bf16.
  virtual std::unique_ptr<const matrix> pack_low_rank(std::span<const low_rank_pair> pairs, std::size_t inputs,
                                                      std::size_t outputs, dtype compute, bool gated = false) = 0;

  /// backend::linear, to which each of `groups` adds what its rows of `in` give with its packed pairs; its bias and
  /// factors are not used, and no row is in two groups. Rows in none have the bits of backend::linear.
  virtual void linear_plus(const tensor& out, const tensor& in, const matrix& w, const float* bias, store how,
                           std::span<const row_group> groups) = 0;

  /// backend::linear_activated, to whose sums the groups add what their rows give, before the activation.
  virtual void linear_activated_plus(const tensor& out, const tensor& in, const matrix& w, const activation& act,
                                     bool gated, const float* bias, std::span<const row_group> groups) = 0;
};

} // namespace troupe::kernels
