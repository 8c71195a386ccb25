// Turns what a schema says of null, booleans, numbers and strings into regular expressions of their JSON. They are
// exact under `not`, `oneOf` and the other combinations, because regular languages are closed under these. Where JSON
// has many spellings of a value, the expressions hold only some of them: numbers that are compared are written without
// exponents, integers without fractions, strings with constraints without needless escapes. A spelling is never in both
// a schema and its negation.
#pragma once

#include "runtime/guide/schema/schema_document.hpp"

#include <map>
#include <tuple>

namespace troupe::guides {

enum class json_type : std::uint8_t { null, boolean, number, string, array, object };

/// A schema that must hold, or must not.
struct demand {
  schema_id schema;
  bool negated = false;
  friend auto operator<=>(const demand&, const demand&) = default;
};

/// The schema allows values of the type at all, by its `type`; true without one.
bool type_allows(const schema_document& doc, schema_id schema, json_type type);

class scalar_schemas {
public:
  scalar_schemas(schema_document& doc, expressions& regex);

  /// The values of this type (not array, not object) that meet the demand. Throws failure(bad_request).
  expression of(const demand& d, json_type type);
  expression of(const std::vector<demand>& all, json_type type);

  /// The JSON spellings of a constant string, number, boolean or null.
  expression constant(schema_id value);
  /// Strings whose value has this text in UTF-8, quotes included.
  expression quoted(std::string_view text);
  /// The inside of strings, without quotes, that match a `pattern`.
  expression pattern(schema_id where, std::string_view text);
  /// With quotes around it.
  expression inside(expression text);
  /// A schema of numbers without needless zeros, if these have any and are few of a kind: so that it can be told when
  /// all of them have been written. Else no_schema.
  schema_id terse(expression numbers);
  /// Numbers of these that end: 20 digits on either side of the point, and 3 of an exponent, unless all are longer.
  expression short_numbers(expression numbers);
  /// All strings in the spelling of constrained ones, quotes included.
  expression plain_strings() const { return plain_strings_; }

  expressions& regex() { return regex_; }
  expression both(expression a, expression b);
  expression either(std::vector<expression> parts);
  expression either(expression a, expression b) { return either(std::vector{a, b}); }

private:
  expression all_of_type(json_type type) const;
  expression compute(const demand& d, json_type type);
  expression keyword(const std::string& key, schema_id schema, schema_id value, bool negated, json_type type);
  expression of_type(schema_id schema, schema_id value, bool negated, json_type type);
  expression of_values(const std::vector<schema_id>& values, bool negated, json_type type);
  expression of_bound(schema_id schema, const std::string& key, schema_id value, bool negated);
  expression compared(comparison how, schema_id value);
  expression of_multiple(schema_id value, bool negated);
  expression of_length(schema_id schema, schema_id value, bool least, bool negated);
  expression combined(const std::string& key, schema_id schema, schema_id value, bool negated, json_type type);

  schema_document& doc_;
  expressions& regex_;
  expression null_, booleans_, numbers_, decimals_, integers_, integral_, strings_, plain_strings_, short_, terse_;
  std::map<std::tuple<demand, json_type>, expression> known_;
  static constexpr expression under_way = 0xFFFFFFFF;
  schema_id terse_numbers_ = no_schema;
  int depth_ = 0;
};

/// Non-negative integer value of a keyword, at most 10^9.
std::uint32_t count_of(const schema_document& doc, schema_id value, std::string_view key);

} // namespace troupe::guides
