// Keywords that occur only in schemas which the compiler invents (`schema_document::is_written`): they say what an
// object or array has where another schema's keyword does not hold.
#pragma once

namespace troupe::guides {

inline constexpr const char* some_other = "\1other";       // a member beside those that this schema names
inline constexpr const char* some_matching = "\1matching"; // of its one member: a name that matches, a value that fails
inline constexpr const char* some_name = "\1name";         // a name that does not meet this schema
inline constexpr const char* some_item = "\1item";         // an item that does not, from the place `first_item` on
inline constexpr const char* first_item = "\1from";
inline constexpr const char* some_need =
  "\1need"; // one of these schemas holds, which are of the kinds above or about one member

} // namespace troupe::guides
