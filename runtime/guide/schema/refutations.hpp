// Lists the ways in which a value does not meet a schema, as schemas of their own. A part of schema_shapes.
#pragma once

#include "runtime/guide/schema/invented_schemas.hpp"
#include "runtime/guide/schema/scalars.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace troupe::guides {

class schema_disjointness;

inline constexpr std::uint32_t no_bound = 0xFFFFFFFF;

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

class schema_refutations {
public:
  schema_refutations(schema_document& doc, scalar_schemas& scalars, invented_schemas& invented,
                     schema_disjointness& disjoint)
    : doc_(doc), scalars_(scalars), invented_(invented), disjoint_(disjoint) {}

  /// Each way: demands that all hold. None: every value meets the schema. Valid until the next call.
  const std::vector<std::vector<demand>>& of(schema_id schema, json_type type);

  /// Those of objects, with all ways that are about one member each joined to one, a need. So refutations do not
  /// multiply.
  std::vector<std::vector<demand>> with_needs(schema_id schema);

  /// If this is a keyword of an invented schema: adds the members that must be there so that another schema does not
  /// hold.
  bool add_need(const std::string& key, schema_id value, object_need& need);

private:
  bool refute_keyword(const std::string& key, schema_id schema, schema_id value, std::vector<std::vector<demand>>& ways,
                      json_type type);
  void refute_neighbours(const std::string& key, schema_id schema, schema_id value,
                         std::vector<std::vector<demand>>& ways, json_type type);
  void sort_ways(schema_id schema, int depth, std::vector<schema_id>& needs, std::vector<std::vector<demand>>& others);
  bool is_about_one_member(schema_id invented) const;
  void add_need(schema_id way, object_need& need);

  schema_document& doc_;
  scalar_schemas& scalars_;
  invented_schemas& invented_;
  schema_disjointness& disjoint_;
  std::map<std::pair<schema_id, int>, std::vector<std::vector<demand>>> refutations_;
  std::map<schema_id, std::vector<std::vector<demand>>> refutations_with_needs_;
};

} // namespace troupe::guides
