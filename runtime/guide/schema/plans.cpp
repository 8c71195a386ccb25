#include "runtime/guide/schema/plans.hpp"

#include <algorithm>
#include <array>

namespace troupe::guides {

using json_kind = schema_node::kind;

namespace {

constexpr std::size_t most_overlaps = 64;

[[noreturn]] void overlapping() {
  throw failure(errc::bad_request,
                "JSON Schema: `patternProperties` overlap in more than " + std::to_string(most_overlaps) + " ways");
}

} // namespace

schema_planner::schema_planner(schema_document& doc, expressions& regex, const guide_limits& limits, bool closed)
  : doc_(doc), regex_(regex), limits_(limits), closed_(closed), scalars_(doc, regex), shapes_(doc, scalars_, limits) {}

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
  for (const auto type : {json_type::null, json_type::boolean, json_type::number, json_type::string})
    plan.scalars = regex_.alternation(plan.scalars, scalars_.of(all, type));
  for (const auto& s : shapes_.of(all, json_type::object))
    if (auto o = plan_object(s))
      plan.objects.push_back(std::move(*o));
  for (const auto& s : shapes_.of(all, json_type::array))
    if (auto a = plan_array(s))
      plan.arrays.push_back(std::move(*a));
  return plan;
}

// -- objects --------------------------------------------------------------------

std::optional<object_plan> schema_planner::plan_object(const shape& s) {
  object_plan plan{.members = {}, .extras = {}, .least = s.least, .most = s.most};
  std::vector<std::string> names;
  std::set<std::string> known;
  for (const auto& f : s.objects)
    for (const auto& [name, d] : f->names)
      if (known.insert(name).second)
        names.push_back(name);
  for (const auto& name : s.required)
    if (known.insert(name).second)
      names.push_back(name);
  const auto allowed = scalars_.of(s.name_demands, json_type::string);
  for (const auto& name : names) {
    const bool required = s.required.contains(name);
    auto demands = demands_of_name(s, name, regex_);
    const bool forbidden = std::ranges::any_of(demands, [&](const auto& d) {
      const auto& n = doc_.at(d.schema);
      return n.what == json_kind::boolean && n.truth == d.negated;
    });
    const auto key = s.name_demands.empty() ? scalars_.quoted(name) : scalars_.both(scalars_.quoted(name), allowed);
    if (forbidden || !regex_.alive(key)) {
      if (required)
        return {};
      continue;
    }
    plan.members.push_back({key, value_of(std::move(demands)), required});
  }
  plan.extras = plan_extras(s, names);
  const auto required = static_cast<std::uint32_t>(s.required.size());
  if (!plan.extras.empty() && plan.least > required + 1)
    throw failure(errc::bad_request,
                  "JSON Schema: `minProperties` above " + std::to_string(required + 1) +
                    " cannot be enforced where names are free, because they could repeat");
  return plan;
}

/// Whether names that no schema speaks of are left out. `names`: of those that one does.
bool schema_planner::is_closed(const shape& s, std::size_t names) const {
  bool declares = false;
  for (const auto& f : s.objects) {
    if (f->rest)
      return false;
    declares |= f->declares;
  }
  return closed_ && declares && s.name_demands.empty() && names >= s.least;
}

/// The names that no schema names, by what is demanded of their values.
std::vector<object_plan::extra> schema_planner::plan_extras(const shape& s, const std::vector<std::string>& names) {
  struct part {
    expression key;
    std::vector<demand> demands;
  };
  std::vector<expression> named;
  for (const auto& n : names)
    named.push_back(scalars_.quoted(n));
  auto all = scalars_.plain_strings();
  if (!s.name_demands.empty())
    all = scalars_.both(all, scalars_.of(s.name_demands, json_type::string));
  if (!named.empty())
    all = regex_.difference(all, regex_.alternation(std::move(named)));
  std::vector<part> parts{{all, {}}};
  for (const auto& f : s.objects) {
    std::vector<part> next;
    for (auto& p : parts) {
      std::vector<part> split{{p.key, {}}};
      for (const auto& [pattern, d] : f->patterns) {
        const auto quoted = scalars_.inside(pattern);
        for (std::size_t i = 0, n = split.size(); i < n; ++i) {
          const auto inside = regex_.intersection(split[i].key, quoted);
          if (!regex_.alive(inside))
            continue;
          auto with = split[i];
          with.key = inside;
          with.demands.push_back(d);
          split[i].key = regex_.difference(split[i].key, quoted);
          split.push_back(std::move(with));
        }
        if (split.size() > most_overlaps)
          overlapping();
      }
      for (auto& q : split) {
        if (!regex_.alive(q.key))
          continue;
        if (q.demands.empty() && f->rest)
          q.demands.push_back(*f->rest);
        q.demands.insert(q.demands.end(), p.demands.begin(), p.demands.end());
        next.push_back(std::move(q));
      }
    }
    if (next.size() > most_overlaps)
      overlapping();
    parts = std::move(next);
  }
  std::vector<object_plan::extra> extras;
  for (auto& p : parts) {
    if (!regex_.alive(p.key))
      continue;
    const bool forbidden = std::ranges::any_of(p.demands, [&](const auto& d) {
      const auto& n = doc_.at(d.schema);
      return n.what == json_kind::boolean && n.truth == d.negated;
    });
    if (!forbidden && !(p.demands.empty() && is_closed(s, names.size())))
      extras.push_back({p.key, value_of(std::move(p.demands))});
  }
  return extras;
}

// -- arrays -----------------------------------------------------------------------

std::optional<array_plan> schema_planner::plan_array(const shape& s) {
  array_plan plan;
  plan.least = s.least;
  plan.most = s.most;
  if (s.contains.size() > 3)
    throw failure(errc::bad_request, "JSON Schema: more than 3 `contains` on one array are not supported");
  std::size_t first = 0;
  for (const auto& f : s.arrays)
    first = std::max(first, f.first.size());
  const auto demands = [&](std::size_t i) {
    std::vector<demand> all;
    for (const auto& f : s.arrays)
      if (i < f.first.size())
        all.push_back(f.first[i]);
      else if (f.rest)
        all.push_back(*f.rest);
    return all;
  };
  const auto item = [&](std::size_t i) {
    array_plan::item values;
    for (std::size_t set = 0; set < std::size_t(1) << s.contains.size(); ++set) {
      auto all = demands(i);
      for (std::size_t c = 0; c < s.contains.size(); ++c)
        if (set >> c & 1)
          all.push_back(s.contains[c].item);
        else if (s.contains[c].most != no_bound)
          all.push_back({s.contains[c].item.schema, !s.contains[c].item.negated});
      values.push_back(value_of(std::move(all)));
    }
    return values;
  };
  for (std::size_t i = 0; i < first && i < plan.most; ++i)
    plan.first.push_back(item(i));
  plan.rest = item(first);
  for (const auto& c : s.contains)
    plan.contains.push_back({c.least, c.most});
  if (s.unique && plan.most > 1) {
    if (first > 0 || !s.contains.empty())
      doc_.refuse(s.unique_at, "`uniqueItems` beside `prefixItems` or `contains` cannot be enforced");
    plan_distinct(s, demands(0), plan);
    if (plan.least > plan.distinct.size())
      return {};
    plan.most = std::min(plan.most, static_cast<std::uint32_t>(plan.distinct.size()));
  }
  return plan;
}

/// Items that must differ: enforced where they come from a list.
void schema_planner::plan_distinct(const shape& s, const std::vector<demand>& item, array_plan& plan) {
  std::vector<schema_id> values;
  bool found = false;
  for (auto d : item) {
    d = simplified(d);
    const auto list = doc_.find(d.schema, "enum");
    if (!d.negated && list != no_schema && !found) {
      values = doc_.at(list).items;
      found = true;
    }
  }
  if (!found || values.size() > 64)
    doc_.refuse(s.unique_at, "`uniqueItems` can be enforced only over an `enum` of at most 64 values");
  std::vector<schema_id> kept;
  for (const auto v : values) {
    const auto type = doc_.at(v).what;
    if (type == json_kind::object || type == json_kind::array)
      doc_.refuse(s.unique_at, "`uniqueItems` over objects or arrays cannot be enforced");
    if (std::ranges::any_of(kept, [&](auto k) { return doc_.equal(k, v); }))
      continue;
    static constexpr json_type types[] = {json_type::null, json_type::boolean, json_type::number, json_type::string};
    const auto e = scalars_.both(scalars_.constant(v), scalars_.of(item, types[static_cast<int>(type)]));
    if (!regex_.alive(e))
      continue;
    kept.push_back(v);
    plan.distinct.push_back(e);
  }
}

// -- what cannot be --------------------------------------------------------------------

/// Finds the values that exist (least fixed point) and removes all else, so that no text leads to a dead end.
void schema_planner::drop_impossible(std::vector<value_plan>& plans) const {
  std::vector<bool> possible(plans.size());
  const auto exists = [&](value_id v) { return bool(possible[v]); };
  const auto any = [&](const array_plan::item& i) { return std::ranges::any_of(i, exists); };
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
    return required <= o.most && (members >= o.least || (extra && o.most >= o.least));
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
      std::erase_if(o.members, [&](const auto& m) { return !exists(m.value); });
      std::erase_if(o.extras, [&](const auto& e) { return !exists(e.value); });
    }
    std::erase_if(p.arrays, [&](const auto& a) { return a.distinct.empty() && items_exist(a) < a.least; });
    for (auto& a : p.arrays)
      if (a.distinct.empty())
        a.most = std::min(a.most, items_exist(a));
  }
}

} // namespace troupe::guides
