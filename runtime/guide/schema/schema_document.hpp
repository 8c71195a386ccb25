// A JSON Schema as a tree of nodes with ids, its references resolved. Values that the compiler invents (the schema of a
// constant) are added to the same tree. Owned by one compilation.
#pragma once

#include "runtime/guide/limits.hpp"
#include "runtime/guide/regex/expressions.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::guides {

using schema_id = std::uint32_t;
inline constexpr schema_id no_schema = 0xFFFFFFFF;

struct schema_node {
  enum class kind : std::uint8_t { null, boolean, number, string, array, object };
  kind what = kind::null;
  bool truth = false;                // boolean
  std::string text = {};             // string; of a number: all its digits, without an exponent
  double number = 0;                 // number
  std::vector<schema_id> items = {}; // array
  std::vector<std::pair<std::string, schema_id>> members = {}; // object, in order
  // Where it stands in the text, for messages: among the items or members of another one. Invented nodes stand nowhere.
  schema_id parent = no_schema;
  std::uint32_t place = 0;
};

class schema_document {
public:
  /// Throws failure(bad_request) if it is not JSON, nested too deeply, or has a reference to nowhere.
  explicit schema_document(std::string_view text);

  schema_id root() const { return 0; }
  const schema_node& at(schema_id s) const { return nodes_[s]; }
  /// Whether it stands in the text, and was not invented.
  bool is_written(schema_id s) const { return s == root() || nodes_[s].parent != no_schema; }
  /// The value of a keyword, or no_schema.
  schema_id find(schema_id object, std::string_view key) const;
  /// What the `$ref` of this object refers to.
  schema_id target(schema_id object) const { return targets_.at(object); }
  /// Drafts up to 7 ignore what stands beside `$ref`.
  bool lone_references() const { return lone_references_; }
  /// Whether the keyword has a meaning in the schema: what the text's draft does not have is an annotation there.
  bool knows(schema_id schema, std::string_view keyword) const;
  bool equal(schema_id a, schema_id b) const;

  // -- invented nodes -----------------------------------------------------------------

  schema_id add(schema_node n);
  schema_id boolean(bool truth) { return truth ? true_ : false_; }

  [[noreturn]] void refuse(schema_id where, std::string_view what) const;
  /// What a keyword lists. Throws failure unless it has any.
  std::vector<schema_id> schemas_of(const std::string& keyword, schema_id value) const;

private:
  using base_id = std::uint32_t;

  template <class Element>
  schema_id read(const Element& e, schema_id parent, std::size_t place, std::size_t depth);
  std::string path(schema_id s) const; // "#/properties/a"
  void resolve();
  base_id add_base(std::string name);
  void collect(schema_id s, base_id outer, bool is_schema, std::size_t depth);
  schema_id look_up(schema_id from, base_id base, const std::string& reference) const;
  schema_id follow(schema_id from, std::string_view pointer) const;

  std::deque<schema_node> nodes_;                              // references stay valid
  std::vector<std::string> bases_;                             // absolute identifiers, "" first
  std::map<std::string, base_id, std::less<>> base_ids_;       // by name
  std::map<std::pair<base_id, std::string>, schema_id> names_; // identifiers, with and without an anchor
  std::vector<std::pair<schema_id, base_id>> references_;      // objects with `$ref`, and the base there
  std::map<schema_id, schema_id> targets_;
  schema_id true_ = 0, false_ = 0;
  bool lone_references_ = false;
  bool draft_4_ = false; // or earlier
};

/// The magnitude of a number's text, and whether it is negative (and not zero).
std::pair<decimal, bool> decimal_of(std::string_view text);

} // namespace troupe::guides
