#include "runtime/guide/schema/plans.hpp"

#include <array>

namespace troupe::guides {

using json_kind = schema_node::kind;

namespace {

/// Finds the values that exist (least fixed point) and removes all else, so that no text leads to a dead end.
void drop_impossible(std::vector<value_plan>& plans) {
  std::vector<bool> possible(plans.size());
  const auto exists = [&](value_id v) { return bool(possible[v]); };
  const auto any = [&](const array_plan::item& i) {
    return std::ranges::any_of(i, exists, &array_plan::counting::value);
  };
  const auto object_exists = [&](const object_plan& o) {
    meter::charge(1 + o.members.size() + o.extras.size());
    std::uint32_t required = 0, members = 0;
    for (const auto& m : o.members) {
      if (m.required && !exists(m.value))
        return false;
      required += m.required;
      members += exists(m.value);
    }
    const bool extra = std::ranges::any_of(o.extras, [&](const auto& e) { return exists(e.value); });
    const auto all = [](std::size_t) { return true; };
    return required <= o.most && (members >= o.least || (extra && o.most >= o.least)) &&
      (o.needs == 0 || members_to_complete(o, o.needs, all, exists) <= std::min(o.most, no_bound - 1));
  };
  const auto items_exist = [&](const array_plan& a) { // as many as there can be
    meter::charge(1 + a.first.size());
    std::uint32_t n = 0;
    while (n < a.first.size() && any(a.first[n]))
      ++n;
    return n == a.first.size() && any(a.rest) ? no_bound : n;
  };
  for (bool changed = true; changed;) {
    changed = false;
    meter::charge(1 + plans.size());
    for (auto v = plans.size(); v-- > 0;) { // values come before those inside of them
      if (possible[v])
        continue;
      const auto& p = plans[v];
      possible[v] = p.scalars != no_text || std::ranges::any_of(p.objects, object_exists) ||
        std::ranges::any_of(p.arrays, [&](const auto& a) { return !a.distinct.empty() || items_exist(a) >= a.least; });
      changed |= possible[v];
    }
  }
  for (auto& p : plans) {
    std::erase_if(p.objects, [&](const auto& o) { return !object_exists(o); });
    for (auto& o : p.objects) {
      for (const auto& m : o.members)
        if (!exists(m.value))
          o.needs &= ~m.absent;
      std::erase_if(o.members, [&](const auto& m) { return !exists(m.value); });
      for (auto& m : o.members)
        std::erase_if(m.meets, [&](const auto& way) { return !exists(way.value); });
      std::erase_if(o.extras, [&](const auto& e) { return !exists(e.value); });
    }
    std::erase_if(p.arrays, [&](const auto& a) { return a.distinct.empty() && items_exist(a) < a.least; });
    for (auto& a : p.arrays)
      if (a.distinct.empty())
        a.most = std::min(a.most, items_exist(a));
  }
}

} // namespace

schema_planner::schema_planner(schema_document& doc, expressions& regex, const guide_limits& limits,
                               const json_style& style)
  : doc_(doc),
    regex_(regex),
    limits_(limits),
    scalars_(doc, regex),
    shapes_(doc, scalars_, limits),
    objects_(doc, scalars_, *this, style) {}

std::vector<value_plan> schema_planner::plan() {
  value_of({{doc_.root()}});
  std::vector<value_plan> plans;
  while (plans.size() < demands_.size())
    plans.push_back(plan_value(std::vector(demands_[plans.size()])));
  drop_impossible(plans);
  return plans;
}

/// References that stand alone, followed.
demand schema_planner::simplified(demand d) const {
  static constexpr std::array<std::string_view, 12> annotations{"title",       "description", "default", "examples",
                                                                "$comment",    "$id",         "id",      "$schema",
                                                                "definitions", "$defs",       "example", "deprecated"};
  for (int i = 0; i < 100; ++i) {
    if (doc_.at(d.schema).what != json_kind::object || doc_.find(d.schema, "$ref") == no_schema)
      break;
    const bool alone = doc_.lone_references() || std::ranges::all_of(doc_.at(d.schema).members, [](const auto& m) {
                         return m.first == "$ref" || std::ranges::find(annotations, m.first) != annotations.end();
                       });
    if (!alone)
      break;
    d.schema = doc_.target(d.schema);
  }
  return d;
}

value_id schema_planner::value_of(std::vector<demand> all) {
  for (auto& d : all)
    d = simplified(d);
  std::erase_if(all, [&](const auto& d) {
    const auto& n = doc_.at(d.schema);
    return !d.negated &&
      ((n.what == json_kind::boolean && n.truth) || (n.what == json_kind::object && n.members.empty()));
  });
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  const auto [known, fresh] = values_.try_emplace(all, static_cast<value_id>(demands_.size()));
  if (fresh) {
    if (demands_.size() >= limits_.rules / 4)
      too_large("different values in the JSON Schema", limits_.rules / 4);
    demands_.push_back(std::move(all));
  }
  return known->second;
}

value_plan schema_planner::plan_value(const std::vector<demand>& all) {
  value_plan plan;
  for (const auto type : {json_type::null, json_type::boolean, json_type::number, json_type::string}) {
    const auto values = scalars_.of(all, type);
    plan.scalars = regex_.alternation(plan.scalars,
                                      type == json_type::number ? scalars_.short_numbers(values) : values);
  }
  for (const auto& s : shapes_.of(all, json_type::object))
    if (auto o = objects_.plan(s))
      plan.objects.push_back(std::move(*o));
  for (const auto& s : shapes_.of(all, json_type::array))
    if (auto a = plan_array(s))
      plan.arrays.push_back(std::move(*a));
  return plan;
}

} // namespace troupe::guides
