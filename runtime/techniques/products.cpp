#include "runtime/techniques/products.hpp"

#include "runtime/support/types.hpp"

#include <algorithm>
#include <numeric>

namespace troupe {

added_products::added_products(std::span<const added_rows> rows) {
  for (const auto& r : rows) {
    auto of = std::ranges::find(rows_, r.by, &rows_of::by);
    if (of == rows_.end())
      of = rows_.insert(of, {r.by, {}});
    const auto before = of->rows.size();
    of->rows.resize(before + as_size(r.rows));
    std::iota(of->rows.begin() + static_cast<std::ptrdiff_t>(before), of->rows.end(), r.first_row);
  }
}

std::span<const kernels::row_group> added_products::at(int layer, product_site site) {
  groups_.clear();
  for (const auto& of : rows_)
    if (const auto& term = of.by->layers[as_size(layer)][static_cast<std::size_t>(site)])
      groups_.push_back({term.get(), nullptr, of.rows});
  return groups_;
}

} // namespace troupe
