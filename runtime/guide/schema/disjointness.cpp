#include "runtime/guide/schema/disjointness.hpp"

#include "runtime/guide/schema/shapes.hpp"

#include <algorithm>

namespace troupe::guides {

bool schema_disjointness::disjoint(const std::vector<demand>& a, const std::vector<demand>& b, int depth) {
  if (depth > 3)
    return false;
  const auto [known, fresh] = known_.try_emplace({a, b, depth}, false);
  if (fresh)
    known->second = find_disjoint(a, b, depth);
  return known->second;
}

bool schema_disjointness::find_disjoint(const std::vector<demand>& a, const std::vector<demand>& b, int depth) {
  auto& regex = scalars_.regex();
  for (const auto type : {json_type::null, json_type::boolean, json_type::number, json_type::string})
    if (regex.alive(scalars_.both(scalars_.of(a, type), scalars_.of(b, type))))
      return false;
  for (const auto type : {json_type::object, json_type::array}) {
    const auto left = shapes_.of(a, type);
    if (left.empty())
      continue;
    for (const auto& y : shapes_.of(b, type))
      for (const auto& x : left)
        if (!disjoint_shapes(x, y, type, depth))
          return false;
  }
  return true;
}

bool schema_disjointness::disjoint_shapes(const shape& a, const shape& b, json_type type, int depth) {
  if (a.least > b.most || b.least > a.most)
    return true;
  if (type == json_type::object) {
    auto required = a.required;
    required.insert(b.required.begin(), b.required.end());
    for (const auto& name : required)
      if (disjoint(demands_of_name(a, name, scalars_.regex()), demands_of_name(b, name, scalars_.regex()), depth + 1))
        return true;
    return false;
  }
  const auto sure = std::min<std::uint32_t>(std::max(a.least, b.least), 16); // items that either has
  for (std::uint32_t i = 0; i < sure; ++i)
    if (disjoint(demands_of_item(a, i), demands_of_item(b, i), depth + 1))
      return true;
  return false;
}

} // namespace troupe::guides
