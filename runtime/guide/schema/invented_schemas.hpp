// Schemas that the compiler invents, to say what a value has where another schema does not hold. The keywords here occur
// in them alone (`schema_document::is_written`).
#pragma once

#include "runtime/guide/schema/schema_document.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace troupe::guides {

inline constexpr const char* some_other = "\1other";       // a member beside those that this schema names
inline constexpr const char* some_matching = "\1matching"; // of its one member: a name that matches, a value that fails
inline constexpr const char* some_name = "\1name";         // a name that does not meet this schema
inline constexpr const char* some_item = "\1item";         // an item that does not, from the place `first_item` on
inline constexpr const char* first_item = "\1from";
inline constexpr const char* some_need = "\1need"; // one of these schemas holds, which are of the kinds above or
                                                   // about one member

class invented_schemas {
public:
  explicit invented_schemas(schema_document& doc) : doc_(doc) {}

  schema_id object(std::vector<std::pair<std::string, schema_id>> members);
  schema_id list_of(std::vector<schema_id> items);
  schema_id number(std::uint32_t n);
  schema_id text(const std::string& s);
  /// One that an object or list and nothing else meets.
  schema_id of_constant(schema_id value);

private:
  schema_document& doc_;
  std::map<schema_id, schema_id> constants_;
};

} // namespace troupe::guides
