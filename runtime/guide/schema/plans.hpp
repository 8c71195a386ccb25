// From schemas to what a grammar of JSON needs to know of each value: its scalars, its alternatives as object and
// array, and which other values are inside. Values are numbered, and equal demands share a number, so recursion ends.
#pragma once

#include "runtime/guide/schema/shapes.hpp"

#include <map>
#include <string>
#include <vector>

namespace troupe::guides {

using value_id = std::uint32_t;

struct object_plan {
  /// What an object needs beside its required members, one bit each (shape::needs).
  using need_set = std::uint32_t;
  static constexpr std::size_t most_needs = 4;
  struct meeting {
    need_set needs;
    value_id value;
  };
  struct member {
    expression key; // quotes included
    value_id value;
    bool required = false;
    std::vector<meeting> meets = {}; // values with which it meets needs
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
  std::vector<std::uint32_t> fewest(plan.needs + std::size_t(1), no_bound); // by the set of needs that are met
  const auto improve = [](std::uint32_t& known, std::uint32_t n) { known = std::min(known, n); };
  fewest[plan.needs & ~unmet] = 0;
  for (std::size_t m = 0; m < plan.members.size(); ++m) {
    const auto& member = plan.members[m];
    if (!left(m) || (!member.required && member.meets.empty()))
      continue;
    meter::charge(fewest.size());
    std::vector<std::uint32_t> next(fewest.size(), no_bound);
    for (std::uint32_t met = 0; met < fewest.size(); ++met) {
      if (fewest[met] == no_bound)
        continue;
      if (!member.required)
        improve(next[met], fewest[met]);
      else if (exists(member.value))
        improve(next[met], fewest[met] + 1);
      for (const auto& way : member.meets)
        if (exists(way.value))
          improve(next[met | way.needs], fewest[met] + 1);
    }
    fewest = std::move(next);
  }
  for (std::uint32_t met = 0; met < fewest.size(); ++met)
    for (const auto& e : plan.extras)
      if (fewest[met] != no_bound && exists(e.value))
        improve(fewest[met | e.meets], fewest[met] + 1);
  return fewest.back();
}

struct array_plan {
  /// The values of an item: by the set of `contains` that it counts for.
  using item = std::vector<value_id>;
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

class schema_planner {
public:
  /// `closed`: as guide_source::closed.
  schema_planner(schema_document& doc, expressions& regex, const guide_limits& limits, bool closed);

  /// The plans of the schema and of all values inside it, the schema's first; values and members that cannot occur are
  /// left out. Throws failure(bad_request).
  std::vector<value_plan> plan();

private:
  value_id value_of(std::vector<demand> all);
  demand simplified(demand d) const;
  value_plan plan_value(const std::vector<demand>& all);
  std::optional<object_plan> plan_object(const shape& s);
  void plan_members(const shape& s, const std::vector<std::string>& names, object_plan& plan);
  std::vector<object_plan::extra> plan_extras(const shape& s, const std::vector<std::string>& names);
  std::vector<object_plan::extra> meeting_needs(const shape& s, expression key, const std::vector<demand>& all);
  std::vector<std::string> countable_names(const std::vector<object_plan::extra>& extras);
  bool is_closed(const shape& s, std::size_t names) const;
  std::optional<array_plan> plan_array(const shape& s);
  bool plan_distinct(const std::vector<demand>& item, array_plan& plan);
  void drop_impossible(std::vector<value_plan>& plans) const;

  schema_document& doc_;
  expressions& regex_;
  guide_limits limits_;
  bool closed_;
  scalar_schemas scalars_;
  schema_shapes shapes_;
  std::map<std::vector<demand>, value_id> values_;
  std::vector<std::vector<demand>> demands_; // by value
};

} // namespace troupe::guides
