// Adds the adapters of a step's rows within the products of the base model. Rows of different adapters share these
// products (Punica, Chen et al. 2023; S-LoRA, Sheng et al. 2023). A row's bits depend on its own adapter alone, and
// rows without one have the bits of the base. Used by the thread that uses its backend.
#pragma once

#include "runtime/adapters/packed_adapter.hpp"

#include <span>

namespace troupe {

class adapter_products {
public:
  /// Takes the rows of a step; until the next one.
  void begin(std::span<const adapted_rows> rows);

  bool empty() const { return rows_.empty(); }

  /// backend::linear, for a site of a layer: out (+)= in · wᵀ + bias, and in · aᵀ · bᵀ of each row's adapter. `backend`
  /// needs low_rank_products if there are any rows.
  void linear(kernels::backend& backend, int layer, adapter_site site, const kernels::tensor& out,
              const kernels::tensor& in, const kernels::matrix& w, const float* bias, kernels::store how);

  /// backend::linear_activated, likewise: of gate and up.
  void linear_activated(kernels::backend& backend, int layer, const kernels::tensor& out, const kernels::tensor& in,
                        const kernels::matrix& w, const kernels::activation& act, bool gated, const float* bias);

private:
  /// All rows of one adapter.
  struct rows_of {
    std::shared_ptr<const packed_adapter> by;
    std::vector<std::int32_t> rows;
  };

  /// The rows that have something to add, until the next call.
  std::span<const kernels::row_group> groups(int layer, adapter_site site);

  std::vector<rows_of> rows_;
  std::vector<kernels::row_group> groups_;
};

} // namespace troupe
