// Turns what a schema says of objects and arrays into a list of alternatives without combinators: `allOf` is merged,
// and `anyOf`, `oneOf`, `if` and `not` are multiplied out. What cannot be expressed exactly is refused by name.
#pragma once

#include "runtime/guide/schema/disjointness.hpp"
#include "runtime/guide/schema/invented_schemas.hpp"
#include "runtime/guide/schema/refutations.hpp"
#include "runtime/guide/schema/scalars.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::guides {

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
  schema_shapes(const schema_shapes&) = delete; // its parts refer to each other
  schema_shapes& operator=(const schema_shapes&) = delete;

  /// The alternatives of the values of `type` (object or array) that meet all demands; none if there are no such
  /// values.
  std::vector<shape> of(const std::vector<demand>& all, json_type type);

private:
  struct progress;
  void expand(progress p, std::vector<shape>& out);
  bool apply(const demand& d, progress& p);
  bool apply_keyword(const std::string& key, schema_id schema, schema_id value, progress& p);
  void object_keyword(const std::string& key, schema_id schema, schema_id value, progress& p);
  void array_keyword(const std::string& key, schema_id schema, schema_id value, progress& p);
  std::vector<shape> alternatives(const std::vector<demand>& all, json_type type, std::size_t most);
  bool refute(schema_id schema, progress& p);
  void one_of(schema_id value, progress& p);

  schema_document& doc_;
  scalar_schemas& scalars_;
  guide_limits limits_;
  invented_schemas invented_{doc_};
  schema_disjointness disjoint_{*this, scalars_};
  schema_refutations refutations_{doc_, scalars_, invented_, disjoint_};
  std::map<std::pair<schema_id, json_type>, bool> impossible_; // false while it is asked for
  std::size_t steps_ = 0, most_ = 0;
  bool needs_ = false; // refutations of objects become needs
  int depth_ = 0;
};

/// What the facets together demand of a member of this name. `inside`: matches the name between quotes.
std::vector<demand> demands_of_name(const shape& s, const std::string& name, expressions& regex);

/// What the facets together demand of the item at this place.
std::vector<demand> demands_of_item(const shape& s, std::size_t place);

} // namespace troupe::guides
