// Turns schemas into what a grammar of JSON needs to know of each value: its scalars, its alternatives as object and
// array, and which values are inside it. Values are numbered, and equal demands share a number, so recursion ends.
#pragma once

#include "runtime/guide/schema/schema_grammar.hpp"
#include "runtime/guide/schema/shapes.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace troupe::guides {

using value_id = std::uint32_t;

struct object_plan {
  /// What an object needs beside its required members, one bit each (shape::needs).
  using need_set = std::uint32_t;
  static constexpr std::size_t most_needs = 32, most_combined = 4, most_single = 8;
  struct meeting {
    need_set needs;
    value_id value;
  };
  struct member {
    expression key; // quotes included
    value_id value;
    bool required = false;
    std::vector<meeting> meets = {}; // values with which it meets needs
    need_set absent = 0;             // that are met if it is not there
  };
  std::vector<member> members; // in the schema's order
  struct extra {
    expression key;
    value_id value;
    need_set meets = 0;
  };
  std::vector<extra> extras; // members that the schema does not name
  std::uint32_t least = 0, most = no_bound;
  need_set needs = 0;
  bool distinct = false; // no name may come twice
};

/// The fewest members with which an object is complete: those of `left` that are required, and some that meet the
/// `unmet` needs; no_bound if there are none such. `exists` tells of values.
template <class Left, class Exists>
std::uint32_t members_to_complete(const object_plan& plan, object_plan::need_set unmet, Left left, Exists exists) {
  struct way {
    object_plan::need_set unmet;
    std::uint32_t members;
  };
  constexpr std::size_t most_ways = 256;
  // Leaves out ways that another one is as good as: few remain.
  const auto add = [](std::vector<way>& ways, way w) {
    meter::charge(1 + ways.size() / 4);
    const auto as_good = [](const way& x, const way& y) { return (x.unmet & ~y.unmet) == 0 && x.members <= y.members; };
    if (std::ranges::any_of(ways, [&](const way& other) { return as_good(other, w); }))
      return false;
    std::erase_if(ways, [&](const way& other) { return as_good(w, other); });
    if (ways.size() >= most_ways)
      too_large("ways to complete an object", most_ways);
    ways.push_back(w);
    return true;
  };
  std::vector<way> now{{unmet, 0}};
  for (std::size_t m = 0; m < plan.members.size(); ++m) {
    const auto& member = plan.members[m];
    if (!left(m) || (!member.required && member.absent == 0 && member.meets.empty()))
      continue;
    std::vector<way> next;
    for (const auto& w : now) {
      if (!member.required)
        add(next, {w.unmet & ~member.absent, w.members});
      else if (exists(member.value))
        add(next, {w.unmet, w.members + 1});
      for (const auto& meeting : member.meets)
        if (exists(meeting.value))
          add(next, {w.unmet & ~meeting.needs, w.members + 1});
    }
    now = std::move(next);
  }
  for (bool changed = true; std::exchange(changed, false);)
    for (const auto& e : plan.extras)
      if (e.meets != 0 && exists(e.value))
        for (const auto& w : std::vector(now))
          changed |= add(now, {w.unmet & ~e.meets, w.members + 1});
  const auto done = std::ranges::find(now, object_plan::need_set(0), &way::unmet);
  return done == now.end() ? no_bound : done->members;
}

struct array_plan {
  /// The values of an item, with the sets of `contains` that they count for.
  struct counting {
    std::uint32_t set;
    value_id value;
  };
  using item = std::vector<counting>;
  static constexpr std::size_t most_contains = 12, most_combined = 3;
  std::vector<item> first;
  item rest;
  std::uint32_t least = 0, most = no_bound;
  struct counted {
    std::uint32_t least = 1, most = no_bound;
  };
  std::vector<counted> contains;
  std::vector<expression> distinct; // if not empty: the items are different ones of these
  bool differ = false;              // no item may come twice, in whichever spelling
};

struct value_plan {
  expression scalars = no_text;
  std::vector<object_plan> objects;
  std::vector<array_plan> arrays;
};

inline constexpr std::size_t most_countable = 64; // values that are told apart one by one

class schema_planner;

/// The part of schema_planner that plans objects.
class object_planner {
public:
  object_planner(schema_document& doc, scalar_schemas& scalars, schema_planner& values, const json_style& style)
    : doc_(doc),
      regex_(scalars.regex()),
      scalars_(scalars),
      values_(values),
      closed_(style.closed),
      distinct_(style.distinct) {}

  /// Nothing: no object has this shape.
  std::optional<object_plan> plan(const shape& s);

private:
  void plan_members(const shape& s, const std::vector<std::string>& names, object_plan& plan);
  std::vector<object_plan::extra> plan_extras(const shape& s, const std::vector<std::string>& names);
  std::vector<object_plan::extra> meeting_needs(const shape& s, expression key, const std::vector<demand>& all);
  std::vector<std::string> countable_names(const std::vector<object_plan::extra>& extras);
  bool is_closed(const shape& s, std::size_t names) const;
  bool is_forbidden(const std::vector<demand>& all) const;

  schema_document& doc_;
  expressions& regex_;
  scalar_schemas& scalars_;
  schema_planner& values_;
  bool closed_, distinct_;
};

class schema_planner {
public:
  schema_planner(schema_document& doc, expressions& regex, const guide_limits& limits, const json_style& style);

  /// The plans of the schema and of all values inside it, the schema's first; values and members that cannot occur are
  /// left out. Throws failure(bad_request).
  std::vector<value_plan> plan();

  /// The value that meets all of these, planned or to be planned.
  value_id value_of(std::vector<demand> all);

private:
  demand simplified(demand d) const;
  value_plan plan_value(const std::vector<demand>& all);
  std::optional<array_plan> plan_array(const shape& s);
  bool plan_distinct(const std::vector<demand>& item, array_plan& plan);

  schema_document& doc_;
  expressions& regex_;
  guide_limits limits_;
  scalar_schemas scalars_;
  schema_shapes shapes_;
  object_planner objects_;
  std::map<std::vector<demand>, value_id> values_;
  std::vector<std::vector<demand>> demands_; // by value
};

} // namespace troupe::guides
