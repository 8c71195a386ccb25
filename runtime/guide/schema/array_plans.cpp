// The part of schema_planner that plans arrays.
#include "runtime/guide/schema/plans.hpp"
#include "runtime/guide/seen_values.hpp"

#include <algorithm>
#include <bit>

namespace troupe::guides {

using json_kind = schema_node::kind;

std::optional<array_plan> schema_planner::plan_array(const shape& s) {
  array_plan plan;
  plan.least = s.least;
  plan.most = s.most;
  if (s.contains.size() > array_plan::most_contains)
    too_large("kinds of items that an array must contain", array_plan::most_contains);
  std::size_t first = 0;
  for (const auto& f : s.arrays)
    first = std::max(first, f.first.size());
  for (const auto& c : s.contains)
    first = std::max<std::size_t>(first, c.from);
  if (first > limits_.alternatives)
    too_large("items with schemas of their own", limits_.alternatives);
  if (s.unique && plan.most > 1) {
    plan.differ = first > 0 || !s.contains.empty() || !plan_distinct(demands_of_item(s, 0), plan);
    if (!plan.differ) {
      if (plan.least > plan.distinct.size())
        return {};
      plan.most = std::min(plan.most, static_cast<std::uint32_t>(plan.distinct.size()));
    }
  }
  const auto item = [&](std::size_t i) {
    array_plan::item values;
    auto common = demands_of_item(s, i);
    if (plan.differ)
      if (const auto terse = scalars_.terse(scalars_.of(common, json_type::number)); terse != no_schema)
        common.push_back({terse});
    const auto all_sets = (std::uint32_t(1) << s.contains.size()) - 1;
    for (std::uint32_t set = 0; set <= all_sets; ++set) {
      // With many `contains`, only none, one and all are combined: the sets that are left out would be valid, too.
      if (s.contains.size() > array_plan::most_combined && !std::has_single_bit(set) && set != 0 && set != all_sets)
        continue;
      auto all = common;
      for (std::size_t c = 0; c < s.contains.size(); ++c)
        if (set >> c & 1)
          all.push_back(i < s.contains[c].from ? demand{doc_.boolean(false)} : s.contains[c].item);
        else if (s.contains[c].most != no_bound)
          all.push_back({s.contains[c].item.schema, !s.contains[c].item.negated});
      values.push_back({set, value_of(std::move(all))});
    }
    return values;
  };
  for (std::size_t i = 0; i < first && i < plan.most; ++i)
    plan.first.push_back(item(i));
  plan.rest = item(first);
  for (const auto& c : s.contains)
    plan.contains.push_back({c.least, c.most});
  return plan;
}

/// Items that must differ, if they come from a short list of scalars. False if not.
bool schema_planner::plan_distinct(const std::vector<demand>& item, array_plan& plan) {
  for (const auto type : {json_type::object, json_type::array})
    if (!shapes_.of(item, type).empty())
      return false;
  std::vector<schema_id> values;
  for (auto d : item) {
    d = simplified(d);
    if (const auto list = doc_.find(d.schema, "enum"); !d.negated && list != no_schema && values.empty())
      values = doc_.at(list).items;
  }
  static constexpr json_type types[] = {json_type::null, json_type::boolean, json_type::number, json_type::string};
  if (values.empty()) { // few all the same: booleans, small integers
    auto all = no_text;
    for (const auto type : types)
      all = regex_.alternation(all, scalars_.of(item, type));
    const auto texts = regex_.texts(all, most_countable);
    if (!texts)
      return false;
    std::map<value_hash, std::vector<std::string>> spellings;
    for (const auto& text : *texts)
      spellings[seen_values::hash(text)].push_back(text);
    for (auto& [hash, same] : spellings)
      plan.distinct.push_back(regex_.literals(std::move(same)));
    return !plan.distinct.empty();
  }
  if (values.size() > most_countable)
    return false;
  std::vector<schema_id> kept;
  for (const auto v : values) {
    const auto type = doc_.at(v).what;
    if (type == json_kind::object || type == json_kind::array) // the other demands exclude it
      continue;
    if (std::ranges::any_of(kept, [&](auto k) { return doc_.equal(k, v); }))
      continue;
    const auto e = scalars_.both(scalars_.constant(v), scalars_.of(item, types[static_cast<int>(type)]));
    if (!regex_.alive(e))
      continue;
    kept.push_back(v);
    plan.distinct.push_back(e);
  }
  return !plan.distinct.empty();
}

} // namespace troupe::guides
