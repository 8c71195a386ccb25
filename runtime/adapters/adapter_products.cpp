#include "runtime/adapters/adapter_products.hpp"

#include "kernels/row_addends.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <numeric>

namespace troupe {

using kernels::dtype;
using kernels::tensor;

void adapter_products::begin(std::span<const adapted_rows> rows) {
  groups_.clear();
  std::size_t all = 0;
  for (const auto& r : rows) {
    auto group = std::ranges::find(groups_, r.by, &rows_of::by);
    if (group == groups_.end())
      group = groups_.insert(group, {r.by, {}, {}});
    const auto before = group->rows.size();
    group->rows.resize(before + as_size(r.rows));
    std::iota(group->rows.begin() + static_cast<std::ptrdiff_t>(before), group->rows.end(), r.first_row);
    group->ones.resize(group->rows.size(), 1);
    all += as_size(r.rows);
  }
  if (const auto known = counted_.size(); known < all) {
    counted_.resize(all);
    std::iota(counted_.begin(), counted_.end(), 0);
  }
}

void* adapter_products::reserve(kernels::backend& backend, kernels::buffer& memory, std::size_t& have,
                                std::size_t bytes) {
  if (have < bytes) {
    memory = backend.allocate(bytes);
    have = bytes;
  }
  return memory.get();
}

template <class F>
void adapter_products::for_alike(int layer, adapter_site site, const tensor& in, const F& f) {
  open_.clear();
  for (const auto& g : groups_)
    if (site_of(&g, layer, site).a)
      open_.push_back(&g);
  while (!open_.empty()) {
    const auto& parts = site_of(open_.front(), layer, site).parts;
    const auto others = std::stable_partition(open_.begin(), open_.end(),
                                              [&](const rows_of* g) { return site_of(g, layer, site).parts == parts; });
    alike_.assign(open_.begin(), others);
    open_.erase(open_.begin(), others);
    products_.clear();
    std::size_t rows = 0;
    for (const auto* g : alike_) {
      products_.push_back({site_of(g, layer, site).a.get(), nullptr, g->rows});
      rows += g->rows.size();
    }
    const auto width = products_.front().w->outputs;
    const tensor low{reserve(backend_, low_, low_bytes_, rows * width * kernels::size_of(compute_)), compute_, rows,
                     width, width};
    backend_.grouped_activated(low, in, products_, {}, false);
    f(low);
  }
}

namespace {

/// `count` columns of `t` from `first` on.
tensor columns_of(const tensor& t, std::size_t first, std::size_t count) {
  return {static_cast<char*>(t.data) + first * kernels::size_of(t.type), t.type, t.rows, count, t.stride};
}

} // namespace

void adapter_products::add(int layer, adapter_site site, const tensor& in, const tensor& to) {
  for_alike(layer, site, in, [&](const tensor& low) {
    const auto& parts = site_of(alike_.front(), layer, site).parts;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      products_.clear();
      for (const auto* g : alike_)
        products_.push_back({site_of(g, layer, site).b[p].get(), nullptr, g->rows, g->ones});
      backend_.grouped_sum(columns_of(to, parts[p].first_output, parts[p].outputs),
                           columns_of(low, parts[p].first_low, parts[p].rank), products_, kernels::store::add);
    }
  });
}

void adapter_products::activate(int layer, const tensor& out, const tensor& in, const kernels::matrix& w,
                                const kernels::activation& act, bool gated, const float* bias) {
  const auto width = (gated ? 2 : 1) * out.cols;
  std::size_t rows = 0;
  for (const auto& g : groups_)
    rows += site_of(&g, layer, adapter_site::gate_up).a ? g.rows.size() : 0;
  if (rows == 0)
    return backend_.linear_activated(out, in, w, act, gated, bias);
  auto* sums = static_cast<float*>(reserve(backend_, sums_, sums_bytes_, rows * width * sizeof(float)));
  addends_.assign(in.rows, nullptr);
  for_alike(layer, adapter_site::gate_up, in, [&](const tensor& low) {
    const tensor to{sums, dtype::f32, low.rows, width, width};
    const auto& parts = site_of(alike_.front(), layer, adapter_site::gate_up).parts;
    if (gated && parts.size() == 1) // the other half gets nothing
      std::fill_n(sums, low.rows * width, 0.0f);
    for (std::size_t p = 0; p < parts.size(); ++p) {
      products_.clear();
      std::size_t first = 0;
      for (const auto* g : alike_) {
        const std::span local(counted_.data() + first, g->rows.size());
        products_.push_back({site_of(g, layer, adapter_site::gate_up).b[p].get(), nullptr, local, g->ones});
        first += g->rows.size();
      }
      backend_.grouped_sum(columns_of(to, parts[p].first_output, parts[p].outputs),
                           columns_of(low, parts[p].first_low, parts[p].rank), products_, kernels::store::set);
    }
    for (const auto* g : alike_)
      for (const auto row : g->rows) {
        addends_[as_size(row)] = sums;
        sums += width;
      }
  });
  dynamic_cast<kernels::row_addends&>(backend_).linear_activated_plus(out, in, w, act, gated, bias, addends_.data());
}

} // namespace troupe
