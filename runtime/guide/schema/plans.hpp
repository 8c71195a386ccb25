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
  struct member {
    expression key; // quotes included
    value_id value;
    bool required = false;
  };
  std::vector<member> members; // in the schema's order
  struct extra {
    expression key;
    value_id value;
  };
  std::vector<extra> extras; // members that the schema does not name
  std::uint32_t least = 0, most = no_bound;
};

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
  std::vector<object_plan::extra> plan_extras(const shape& s, const std::vector<std::string>& names);
  bool is_closed(const shape& s, std::size_t names) const;
  std::optional<array_plan> plan_array(const shape& s);
  void plan_distinct(const shape& s, const std::vector<demand>& item, array_plan& plan);
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
