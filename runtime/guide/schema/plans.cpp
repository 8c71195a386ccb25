#include "runtime/guide/schema/plans.hpp"

#include "runtime/guide/seen_values.hpp"
#include "runtime/support/json.hpp"

#include <algorithm>
#include <array>
#include <bit>

namespace troupe::guides {

using json_kind = schema_node::kind;

namespace {

constexpr std::size_t most_overlaps = 64;
constexpr std::size_t most_countable = 64; // values that are told apart one by one

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
  for (const auto type : {json_type::null, json_type::boolean, json_type::number, json_type::string}) {
    const auto values = scalars_.of(all, type);
    plan.scalars = regex_.alternation(plan.scalars,
                                      type == json_type::number ? scalars_.short_numbers(values) : values);
  }
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
  if (s.needs.size() > object_plan::most_needs)
    too_large("ways in which an object must not be", object_plan::most_needs);
  object_plan plan{.members = {}, .extras = {}, .least = s.least, .most = s.most};
  plan.needs = static_cast<object_plan::need_set>((std::uint64_t(1) << s.needs.size()) - 1);
  std::vector<std::string> names;
  std::set<std::string> known;
  const auto add = [&](const std::string& name) {
    if (known.insert(name).second)
      names.push_back(name);
  };
  for (const auto& f : s.objects)
    for (const auto& [name, d] : f->names)
      add(name);
  for (const auto& name : s.required)
    add(name);
  for (const auto& need : s.needs)
    std::ranges::for_each(need.absent, add);
  plan.extras = plan_extras(s, names);
  plan.distinct = !plan.extras.empty() && (plan.needs != 0 || plan.least > s.required.size() + 1);
  if (plan.distinct)
    if (const auto more = countable_names(plan.extras); !more.empty()) { // so that it is known when they run out
      std::ranges::for_each(more, add);
      plan.extras = plan_extras(s, names);
    }
  plan_members(s, names, plan);
  const auto required = std::ranges::count_if(plan.members, &object_plan::member::required);
  if (required < std::ssize(s.required)) // one of them is forbidden
    return {};
  return plan;
}

void schema_planner::plan_members(const shape& s, const std::vector<std::string>& names, object_plan& plan) {
  const auto allowed = scalars_.of(s.name_demands, json_type::string);
  for (const auto& name : names) {
    auto demands = demands_of_name(s, name, regex_);
    const bool forbidden = std::ranges::any_of(demands, [&](const auto& d) {
      const auto& n = doc_.at(d.schema);
      return n.what == json_kind::boolean && n.truth == d.negated;
    });
    const auto key = s.name_demands.empty() ? scalars_.quoted(name) : scalars_.both(scalars_.quoted(name), allowed);
    object_plan::need_set absent = 0;
    for (std::size_t n = 0; n < s.needs.size(); ++n)
      if (std::ranges::find(s.needs[n].absent, name) != s.needs[n].absent.end())
        absent |= object_plan::need_set(1) << n;
    if (forbidden || !regex_.alive(key)) {
      plan.needs &= ~absent;
      continue;
    }
    object_plan::member member{key, no_bound, s.required.contains(name), {}, absent};
    for (const auto& way : meeting_needs(s, key, demands))
      member.meets.push_back({way.meets, way.value});
    member.value = value_of(std::move(demands));
    plan.members.push_back(std::move(member));
  }
}

/// The ways in which a member of this name (or of these) that has to meet all demands also meets needs.
std::vector<object_plan::extra> schema_planner::meeting_needs(const shape& s, expression key,
                                                              const std::vector<demand>& all) {
  struct way {
    expression key;
    object_plan::need_set meets = 0;
    std::vector<demand> demands = {};
  };
  // All combinations of few needs; of more, one at a time and as many as possible at once; of many, the latter alone.
  // What is left out would be valid, too.
  const bool all_combined = s.needs.size() <= object_plan::most_combined;
  std::vector<way> ways{{key}};
  way most{key};
  for (std::size_t n = 0; n < s.needs.size(); ++n) {
    const auto count = all_combined ? ways.size() : std::size_t(1);
    const auto extended = [&](const way& w, const object_need::member& m) {
      meter::charge(8 + w.demands.size());
      auto next = w;
      next.key = regex_.intersection(w.key, m.names);
      next.meets |= object_plan::need_set(1) << n;
      next.demands.push_back(m.value);
      return next;
    };
    for (const auto& m : s.needs[n].ways) {
      if (s.needs.size() <= object_plan::most_single)
        for (std::size_t i = 0; i < count; ++i)
          if (auto next = extended(ways[i], m); regex_.alive(next.key))
            ways.push_back(std::move(next));
      if (!all_combined && (most.meets >> n & 1) == 0)
        if (auto next = extended(most, m); regex_.alive(next.key))
          most = std::move(next);
    }
  }
  if (std::popcount(most.meets) > 1 || (most.meets != 0 && s.needs.size() > object_plan::most_single))
    ways.push_back(std::move(most));
  std::vector<object_plan::extra> out;
  for (std::size_t i = 1; i < ways.size(); ++i) {
    auto demands = all;
    demands.insert(demands.end(), ways[i].demands.begin(), ways[i].demands.end());
    out.push_back({ways[i].key, value_of(std::move(demands)), ways[i].meets});
  }
  return out;
}

/// The names of extras that have few.
std::vector<std::string> schema_planner::countable_names(const std::vector<object_plan::extra>& extras) {
  std::vector<std::string> names;
  for (const auto& e : extras)
    if (const auto texts = regex_.texts(e.key, most_countable))
      for (const auto& text : *texts)
        names.emplace_back(std::string_view(json::document::parse(text, "a name", errc::internal).root()));
  std::ranges::sort(names);
  names.erase(std::ranges::unique(names).begin(), names.end());
  return names;
}

/// Whether names that no schema speaks of are left out. `names`: of those that one does.
bool schema_planner::is_closed(const shape& s, std::size_t names) const {
  bool declares = false;
  if (std::ranges::any_of(s.needs, &object_need::of_others))
    return false;
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
    if (forbidden || (p.demands.empty() && is_closed(s, names.size())))
      continue;
    for (const auto& way : meeting_needs(s, p.key, p.demands))
      extras.push_back(way);
    extras.push_back({p.key, value_of(std::move(p.demands))});
  }
  return extras;
}

// -- arrays -----------------------------------------------------------------------

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
  const auto demands = [&](std::size_t i) {
    std::vector<demand> all;
    for (const auto& f : s.arrays)
      if (i < f.first.size())
        all.push_back(f.first[i]);
      else if (f.rest)
        all.push_back(*f.rest);
    return all;
  };
  if (s.unique && plan.most > 1) {
    plan.differ = first > 0 || !s.contains.empty() || !plan_distinct(demands(0), plan);
    if (!plan.differ) {
      if (plan.least > plan.distinct.size())
        return {};
      plan.most = std::min(plan.most, static_cast<std::uint32_t>(plan.distinct.size()));
    }
  }
  const auto item = [&](std::size_t i) {
    array_plan::item values;
    auto common = demands(i);
    if (plan.differ)
      if (const auto terse = scalars_.terse(scalars_.of(common, json_type::number)); terse != no_schema)
        common.push_back({terse});
    const auto all_sets = (std::uint32_t(1) << s.contains.size()) - 1;
    for (std::uint32_t set = 0; set <= all_sets; ++set) {
      // Of many, none, one or all: what is left out would be valid, too.
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

// -- what cannot be --------------------------------------------------------------------

/// Finds the values that exist (least fixed point) and removes all else, so that no text leads to a dead end.
void schema_planner::drop_impossible(std::vector<value_plan>& plans) const {
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

} // namespace troupe::guides
