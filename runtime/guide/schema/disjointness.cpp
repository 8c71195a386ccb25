// The part of schema_shapes that tells whether no value meets two schemas.
#include "runtime/guide/schema/shapes.hpp"
#include "runtime/support/json/json_text.hpp"

#include <algorithm>
#include <string_view>

namespace troupe::guides {

std::vector<demand> demands_of_name(const shape& s, const std::string& name, expressions& regex) {
  std::vector<demand> all;
  std::string inside = json_text(name);
  inside = inside.substr(1, inside.size() - 2);
  for (const auto& f : s.objects) {
    const auto same = std::ranges::equal_range(f->by_name, std::string_view(name), {},
                                               [&](auto i) { return std::string_view(f->names[i].first); });
    for (const auto i : same)
      all.push_back(f->names[i].second);
    bool named = !same.empty();
    for (const auto& [pattern, d] : f->patterns)
      if (regex.matches(pattern, inside)) {
        all.push_back(d);
        named = true;
      }
    if (!named && f->rest)
      all.push_back(*f->rest);
  }
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  return all;
}

std::vector<demand> demands_of_item(const shape& s, std::size_t place) {
  std::vector<demand> all;
  for (const auto& f : s.arrays)
    if (place < f.first.size())
      all.push_back(f.first[place]);
    else if (f.rest)
      all.push_back(*f.rest);
  return all;
}

bool schema_shapes::disjoint(const std::vector<demand>& a, const std::vector<demand>& b, int depth) {
  if (depth > 3)
    return false;
  const auto [known, fresh] = disjoint_.try_emplace({a, b, depth}, false);
  if (fresh)
    known->second = find_disjoint(a, b, depth);
  return known->second;
}

bool schema_shapes::find_disjoint(const std::vector<demand>& a, const std::vector<demand>& b, int depth) {
  auto& regex = scalars_.regex();
  for (const auto type : {json_type::null, json_type::boolean, json_type::number, json_type::string})
    if (regex.alive(scalars_.both(scalars_.of(a, type), scalars_.of(b, type))))
      return false;
  for (const auto type : {json_type::object, json_type::array}) {
    const auto left = of(a, type);
    if (left.empty())
      continue;
    for (const auto& y : of(b, type))
      for (const auto& x : left)
        if (!disjoint_shapes(x, y, type, depth))
          return false;
  }
  return true;
}

bool schema_shapes::disjoint_shapes(const shape& a, const shape& b, json_type type, int depth) {
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
