#include "runtime/guide/schema/plans.hpp"
#include "runtime/support/json/json.hpp"

#include <algorithm>
#include <bit>

namespace troupe::guides {

using json_kind = schema_node::kind;

namespace {

constexpr std::size_t most_overlaps = 64;

[[noreturn]] void overlapping() {
  throw failure(errc::bad_request,
                "JSON Schema: `patternProperties` overlap in more than " + std::to_string(most_overlaps) + " ways");
}

} // namespace

std::optional<object_plan> object_planner::plan(const shape& s) {
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
  plan.distinct = !plan.extras.empty() && (distinct_ || plan.needs != 0 || plan.least > s.required.size() + 1);
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

void object_planner::plan_members(const shape& s, const std::vector<std::string>& names, object_plan& plan) {
  const auto allowed = scalars_.of(s.name_demands, json_type::string);
  for (const auto& name : names) {
    auto demands = demands_of_name(s, name, regex_);
    const auto key = s.name_demands.empty() ? scalars_.quoted(name) : scalars_.both(scalars_.quoted(name), allowed);
    object_plan::need_set absent = 0;
    for (std::size_t n = 0; n < s.needs.size(); ++n)
      if (std::ranges::find(s.needs[n].absent, name) != s.needs[n].absent.end())
        absent |= object_plan::need_set(1) << n;
    if (is_forbidden(demands) || !regex_.alive(key)) {
      plan.needs &= ~absent;
      continue;
    }
    object_plan::member member{key, no_bound, s.required.contains(name), {}, absent};
    for (const auto& way : meeting_needs(s, key, demands))
      member.meets.push_back({way.meets, way.value});
    member.value = values_.value_of(std::move(demands));
    plan.members.push_back(std::move(member));
  }
}

bool object_planner::is_forbidden(const std::vector<demand>& all) const {
  return std::ranges::any_of(all, [&](const auto& d) {
    const auto& n = doc_.at(d.schema);
    return n.what == json_kind::boolean && n.truth == d.negated;
  });
}

/// The ways in which a member of this name (or of these) that has to meet all demands also meets needs.
std::vector<object_plan::extra> object_planner::meeting_needs(const shape& s, expression key,
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
    out.push_back({ways[i].key, values_.value_of(std::move(demands)), ways[i].meets});
  }
  return out;
}

/// The names of extras that have few.
std::vector<std::string> object_planner::countable_names(const std::vector<object_plan::extra>& extras) {
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
bool object_planner::is_closed(const shape& s, std::size_t names) const {
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
std::vector<object_plan::extra> object_planner::plan_extras(const shape& s, const std::vector<std::string>& names) {
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
    if (is_forbidden(p.demands) || (p.demands.empty() && is_closed(s, names.size())))
      continue;
    for (const auto& way : meeting_needs(s, p.key, p.demands))
      extras.push_back(way);
    extras.push_back({p.key, values_.value_of(std::move(p.demands))});
  }
  return extras;
}

} // namespace troupe::guides
