// Turns what a schema says of objects and arrays into a list of alternatives without combinators: `allOf` is merged,
// and `anyOf`, `oneOf`, `if` and `not` are multiplied out. What cannot be expressed exactly is refused by name.
#pragma once

#include "runtime/guide/schema/scalars.hpp"

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace troupe::guides {

inline constexpr std::uint32_t no_bound = 0xFFFFFFFF;

/// One schema's view of the names of an object: members that it does not name fall to its patterns, and those that
/// match none to `rest`.
struct object_facet {
  std::vector<std::pair<std::string, demand>> names;
  std::vector<std::uint32_t> by_name;                  // indices of names, sorted by name
  std::vector<std::pair<expression, demand>> patterns; // of the inside of the name's JSON string
  std::optional<demand> rest;
  bool declares = false; // the schema has `properties`, be they none
};

struct array_facet {
  std::vector<demand> first;
  std::optional<demand> rest;
};

struct contained {
  demand item;
  std::uint32_t least = 1, most = no_bound;
  std::uint32_t from = 0; // items before this one do not count
};

/// What an object needs: a member with one of these names whose value meets the demand, in one of several ways, or that
/// one of some members is not there.
struct object_need {
  struct member {
    expression names; // quotes included
    demand value;
  };
  std::vector<member> ways;
  std::vector<std::string> absent;
  bool of_others = false; // it speaks of members that no schema names
};

/// One alternative.
struct shape {
  std::vector<std::shared_ptr<const object_facet>> objects;
  std::vector<demand> name_demands; // propertyNames
  std::set<std::string> required;
  std::vector<object_need> needs;
  std::vector<array_facet> arrays;
  std::vector<contained> contains;
  bool unique = false;
  schema_id unique_at = 0;
  std::uint32_t least = 0, most = no_bound; // members or items
};

class schema_shapes {
public:
  schema_shapes(schema_document& doc, scalar_schemas& scalars, const guide_limits& limits)
    : doc_(doc), scalars_(scalars), limits_(limits) {}

  /// The alternatives of the values of `type` (object or array) that meet all demands; none if there are no such
  /// values.
  std::vector<shape> of(const std::vector<demand>& all, json_type type);

  /// Whether no value meets both; false if that is not found out.
  bool disjoint(const std::vector<demand>& a, const std::vector<demand>& b, int depth = 0);

private:
  struct progress;
  void expand(progress p, std::vector<shape>& out);
  bool apply(const demand& d, progress& p);
  bool apply_keyword(const std::string& key, schema_id schema, schema_id value, progress& p);
  bool refute_keyword(const std::string& key, schema_id schema, schema_id value, std::vector<std::vector<demand>>& ways,
                      json_type type);
  void object_keyword(const std::string& key, schema_id schema, schema_id value, progress& p);
  bool needed_keyword(const std::string& key, schema_id value, object_need& need);
  void add_need(schema_id way, object_need& need);
  void array_keyword(const std::string& key, schema_id schema, schema_id value, progress& p);
  void refute_neighbours(const std::string& key, schema_id schema, schema_id value,
                         std::vector<std::vector<demand>>& ways, json_type type);
  std::vector<shape> alternatives(const std::vector<demand>& all, json_type type, std::size_t most);
  bool refute(schema_id schema, progress& p);
  const std::vector<std::vector<demand>>& refutation(schema_id schema, json_type type);
  std::vector<std::vector<demand>> with_needs(schema_id schema);
  void sort_ways(schema_id schema, int depth, std::vector<schema_id>& needs, std::vector<std::vector<demand>>& others);
  void one_of(schema_id value, progress& p);
  schema_id schema_of_constant(schema_id value);
  schema_id object_schema(std::vector<std::pair<std::string, schema_id>> members);
  schema_id list_of(std::vector<schema_id> items);
  schema_id number(std::uint32_t n);
  schema_id text(const std::string& s);
  bool is_about_one_member(schema_id invented) const;
  bool find_disjoint(const std::vector<demand>& a, const std::vector<demand>& b, int depth);
  bool disjoint_shapes(const shape& a, const shape& b, json_type type, int depth);

  schema_document& doc_;
  scalar_schemas& scalars_;
  guide_limits limits_;
  std::map<schema_id, schema_id> constants_;
  std::map<std::pair<schema_id, int>, std::vector<std::vector<demand>>> refutations_;
  std::map<schema_id, std::vector<std::vector<demand>>> refutations_with_needs_;
  std::map<std::tuple<std::vector<demand>, std::vector<demand>, int>, bool> disjoint_; // false while it is asked for
  std::map<std::pair<schema_id, json_type>, bool> impossible_;                         // likewise
  std::size_t steps_ = 0, most_ = 0;
  bool needs_ = false; // refutations of objects become needs
  int depth_ = 0;
};

/// What the facets together demand of a member of this name. `inside`: matches the name between quotes.
std::vector<demand> demands_of_name(const shape& s, const std::string& name, expressions& regex);

/// What the facets together demand of the item at this place.
std::vector<demand> demands_of_item(const shape& s, std::size_t place);

} // namespace troupe::guides
