#include "runtime/adapters/adapter_products.hpp"

#include "kernels/low_rank.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <numeric>

namespace troupe {

void adapter_products::begin(std::span<const adapted_rows> rows) {
  rows_.clear();
  for (const auto& r : rows) {
    auto of = std::ranges::find(rows_, r.by, &rows_of::by);
    if (of == rows_.end())
      of = rows_.insert(of, {r.by, {}});
    const auto before = of->rows.size();
    of->rows.resize(before + as_size(r.rows));
    std::iota(of->rows.begin() + static_cast<std::ptrdiff_t>(before), of->rows.end(), r.first_row);
  }
}

std::span<const kernels::row_group> adapter_products::groups(int layer, adapter_site site) {
  groups_.clear();
  for (const auto& of : rows_)
    if (const auto& pairs = of.by->layers[as_size(layer)][static_cast<std::size_t>(site)])
      groups_.push_back({pairs.get(), nullptr, of.rows});
  return groups_;
}

void adapter_products::linear(kernels::backend& backend, int layer, adapter_site site, const kernels::tensor& out,
                              const kernels::tensor& in, const kernels::matrix& w, const float* bias,
                              kernels::store how) {
  if (const auto added = groups(layer, site); added.empty())
    backend.linear(out, in, w, bias, how);
  else
    dynamic_cast<kernels::low_rank_products&>(backend).linear_plus(out, in, w, bias, how, added);
}

void adapter_products::linear_activated(kernels::backend& backend, int layer, const kernels::tensor& out,
                                        const kernels::tensor& in, const kernels::matrix& w,
                                        const kernels::activation& act, bool gated, const float* bias) {
  if (const auto added = groups(layer, adapter_site::gate_up); added.empty())
    backend.linear_activated(out, in, w, act, gated, bias);
  else
    dynamic_cast<kernels::low_rank_products&>(backend).linear_activated_plus(out, in, w, act, gated, bias, added);
}

} // namespace troupe
