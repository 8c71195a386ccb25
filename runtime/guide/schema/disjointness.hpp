// Tells whether no value meets two schemas. A part of schema_shapes.
#pragma once

#include "runtime/guide/schema/scalars.hpp"

#include <map>
#include <tuple>
#include <vector>

namespace troupe::guides {

class schema_shapes;
struct shape;

class schema_disjointness {
public:
  schema_disjointness(schema_shapes& shapes, scalar_schemas& scalars) : shapes_(shapes), scalars_(scalars) {}

  /// Whether no value meets both; false if that is not found out.
  bool disjoint(const std::vector<demand>& a, const std::vector<demand>& b, int depth = 0);

private:
  bool find_disjoint(const std::vector<demand>& a, const std::vector<demand>& b, int depth);
  bool disjoint_shapes(const shape& a, const shape& b, json_type type, int depth);

  schema_shapes& shapes_;
  scalar_schemas& scalars_;
  std::map<std::tuple<std::vector<demand>, std::vector<demand>, int>, bool> known_; // false while it is asked for
};

} // namespace troupe::guides
