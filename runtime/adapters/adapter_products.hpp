// Adds the adapters of a step's rows beside the products of the base model: rows of different adapters share grouped
// products (Punica, Chen et al. 2023; S-LoRA, Sheng et al. 2023). A row's bits depend on its own adapter alone, and rows
// without one are not touched. Used by the thread that uses its backend, whose device memory is the host's.
#pragma once

#include "runtime/adapters/packed_adapter.hpp"

#include <span>

namespace troupe {

class adapter_products {
public:
  /// `backend` must outlive it.
  adapter_products(kernels::backend& backend, kernels::dtype compute) : backend_(backend), compute_(compute) {}

  /// Takes the rows of a step; until the next one.
  void begin(std::span<const adapted_rows> rows);

  bool empty() const { return groups_.empty(); }

  /// to[rows] += in[rows] · aᵀ · bᵀ, for every part of a site. `to`: f32, the columns of the site's outputs.
  void add(int layer, adapter_site site, const kernels::tensor& in, const kernels::tensor& to);

  /// out = what linear_activated gives of the MLP's first matrix with what adapters add to its sums.
  void activate(int layer, const kernels::tensor& out, const kernels::tensor& in, const kernels::matrix& w,
                const kernels::activation& act, bool gated, const float* bias);

private:
  /// All rows of one adapter.
  struct rows_of {
    std::shared_ptr<const packed_adapter> by;
    std::vector<std::int32_t> rows;
    std::vector<float> ones; // a factor for each
  };

  /// Calls f(groups, rows' low-rank values) for each list of groups whose site has the same parts.
  template <class F>
  void for_alike(int layer, adapter_site site, const kernels::tensor& in, const F& f);

  const packed_site& site_of(const rows_of* group, int layer, adapter_site site) const {
    return group->by->layers[static_cast<std::size_t>(layer)][static_cast<std::size_t>(site)];
  }

  /// At least so many bytes.
  static void* reserve(kernels::backend& backend, kernels::buffer& memory, std::size_t& have, std::size_t bytes);

  kernels::backend& backend_;
  kernels::dtype compute_;
  std::vector<rows_of> groups_;
  // Of the call at hand; members, so that steps allocate little.
  kernels::buffer low_, sums_;
  std::size_t low_bytes_ = 0, sums_bytes_ = 0;
  std::vector<const rows_of*> open_, alike_;
  std::vector<kernels::row_group> products_;
  std::vector<std::int32_t> counted_; // 0, 1, 2, ...
  std::vector<const float*> addends_;
};

} // namespace troupe
