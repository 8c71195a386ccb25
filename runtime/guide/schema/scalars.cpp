#include "runtime/guide/schema/scalars.hpp"

#include "runtime/guide/regex/pattern.hpp"
#include "runtime/guide/schema/formats.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::guides {

using json_kind = schema_node::kind;

bool type_allows(const schema_document& doc, schema_id schema, json_type type) {
  const auto value = doc.find(schema, "type");
  if (value == no_schema)
    return true;
  const auto allows = [&](schema_id t) {
    const auto& name = doc.at(t).text;
    switch (type) {
      case json_type::null: return name == "null";
      case json_type::boolean: return name == "boolean";
      case json_type::number: return name == "number" || name == "integer";
      case json_type::string: return name == "string";
      case json_type::array: return name == "array";
      case json_type::object: return name == "object";
    }
    return false;
  };
  const auto& n = doc.at(value);
  const auto check = [&](schema_id t) {
    static constexpr std::string_view names[] = {"null", "boolean", "number", "integer", "string", "array", "object"};
    if (doc.at(t).what != json_kind::string || std::ranges::find(names, doc.at(t).text) == std::end(names))
      doc.refuse(value, "`type` must be the name of a type, or a list of them");
  };
  if (n.what == json_kind::string) {
    check(value);
    return allows(value);
  }
  if (n.what != json_kind::array)
    doc.refuse(value, "`type` must be the name of a type, or a list of them");
  meter::charge(4 * n.items.size());
  std::ranges::for_each(n.items, check);
  return std::ranges::any_of(n.items, allows);
}

std::uint32_t count_of(const schema_document& doc, schema_id value, std::string_view key) {
  const auto& n = doc.at(value);
  if (n.what != json_kind::number || n.number < 0 || n.number > 1e9 || n.number != std::floor(n.number))
    doc.refuse(value, "`" + std::string(key) + "` must be an integer from 0 to 1000000000");
  return static_cast<std::uint32_t>(n.number);
}

scalar_schemas::scalar_schemas(schema_document& doc, expressions& regex) : doc_(doc), regex_(regex) {
  const auto digit = regex.bytes(byte_set::range('0', '9'));
  const auto digits = regex.repeat(digit, 1, unlimited);
  const auto minus = regex.optional(regex.literal("-"));
  const auto whole = regex.alternation(regex.literal("0"),
                                       regex.concat(regex.bytes(byte_set::range('1', '9')), regex.star(digit)));
  const auto fraction = regex.optional(regex.concat(regex.literal("."), digits));
  const auto exponent = regex.optional(
    regex.concat({regex.bytes(byte_set::of('e') | byte_set::of('E')),
                  regex.optional(regex.bytes(byte_set::of('+') | byte_set::of('-'))), digits}));
  null_ = regex.literal("null");
  booleans_ = regex.literals({"true", "false"});
  integers_ = regex.concat(minus, whole);
  decimals_ = regex.concat({minus, whole, fraction});
  numbers_ = regex.concat({minus, whole, fraction, exponent});
  integral_ = regex.concat(
    {minus, whole, regex.optional(regex.concat(regex.literal("."), regex.repeat(regex.literal("0"), 1, unlimited)))});
  const auto up_to = [&](std::uint32_t least, std::uint32_t most) { return regex.repeat(digit, least, most); };
  short_ = regex.concat(
    {minus, up_to(1, 20), regex.optional(regex.concat(regex.literal("."), up_to(1, 20))),
     regex.optional(regex.concat({regex.bytes(byte_set::of('e') | byte_set::of('E')),
                                  regex.optional(regex.bytes(byte_set::of('+') | byte_set::of('-'))), up_to(1, 3)}))});
  const auto zero = regex.concat(regex.literal("0"), regex.optional(regex.literal(".0")));
  const auto nonzero = regex.bytes(byte_set::range('1', '9'));
  const auto last_digits = regex.alternation(regex.literal("0"), regex.concat(regex.star(digit), nonzero));
  terse_ = regex.alternation(
    zero,
    regex.difference(regex.concat({minus, whole, regex.optional(regex.concat(regex.literal("."), last_digits))}),
                     regex.literals({"-0", "-0.0"})));
  strings_ = any_json_string(regex);
  plain_strings_ = inside(any_characters(regex, text_encoding::json_string));
}

schema_id scalar_schemas::terse(expression numbers) {
  if (numbers == no_text || numbers == numbers_ || numbers == integers_)
    return no_schema;
  if (terse_numbers_ == no_schema)
    terse_numbers_ = doc_.add({.what = json_kind::object, .members = {{"\1terse", doc_.boolean(true)}}});
  return terse_numbers_;
}

expression scalar_schemas::short_numbers(expression numbers) {
  constexpr std::size_t most_listed = 256; // which end anyway, and may be long
  if (numbers == no_text || regex_.texts(numbers, most_listed))
    return numbers;
  const auto result = regex_.intersection(numbers, short_);
  return regex_.alive(result) ? result : numbers;
}

expression scalar_schemas::inside(expression text) {
  const auto quote = regex_.literal("\"");
  return regex_.concat({quote, text, quote});
}

expression scalar_schemas::quoted(std::string_view text) {
  return inside(encoded(regex_, text, text_encoding::json_string));
}

expression scalar_schemas::pattern(schema_id where, std::string_view text) {
  try {
    return pattern_in_json_string(regex_, text);
  } catch (const failure& f) {
    doc_.refuse(where, f.what());
  }
}

/// Intersections with a type's full set are the other side, whose spellings are among it.
expression scalar_schemas::both(expression a, expression b) {
  const auto full = [&](expression e) { return e == strings_ || e == numbers_ || e == null_ || e == booleans_; };
  if (a == b || full(b))
    return a;
  return full(a) ? b : regex_.intersection(a, b);
}

expression scalar_schemas::either(std::vector<expression> parts) {
  for (const auto full : {strings_, numbers_})
    if (std::ranges::find(parts, full) != parts.end())
      return full;
  return regex_.alternation(std::move(parts));
}

expression scalar_schemas::all_of_type(json_type type) const {
  switch (type) {
    case json_type::null: return null_;
    case json_type::boolean: return booleans_;
    case json_type::number: return numbers_;
    case json_type::string: return strings_;
    default: return no_text;
  }
}

expression scalar_schemas::of(const std::vector<demand>& all, json_type type) {
  auto result = all_of_type(type);
  for (const auto& d : all)
    if (result != no_text)
      result = both(result, of(d, type));
  return regex_.alive(result) ? result : no_text;
}

expression scalar_schemas::of(const demand& d, json_type type) {
  const auto [known, fresh] = known_.try_emplace({d, type}, under_way);
  if (!fresh) {
    if (known->second == under_way)
      doc_.refuse(d.schema, "refers to itself without an end");
    return known->second;
  }
  if (++depth_ > 200)
    doc_.refuse(d.schema, "schemas refer to each other more than 200 levels deep");
  const auto result = compute(d, type);
  --depth_;
  return known_[{d, type}] = result;
}

expression scalar_schemas::compute(const demand& d, json_type type) {
  const auto& n = doc_.at(d.schema);
  if (n.what == json_kind::boolean)
    return n.truth != d.negated ? all_of_type(type) : no_text;
  if (n.what != json_kind::object)
    doc_.refuse(d.schema, "a schema must be an object or a boolean");
  auto result = all_of_type(type);
  std::vector<expression> ways; // if negated
  const bool lone = doc_.lone_references() && doc_.find(d.schema, "$ref") != no_schema;
  for (const auto& [key, value] : n.members) {
    if ((lone && key != "$ref") || !doc_.knows(d.schema, key))
      continue;
    const auto e = keyword(key, d.schema, value, d.negated, type);
    if (e == any_text)
      continue; // says nothing of this type
    if (d.negated)
      ways.push_back(e);
    else if (result = both(result, e); !regex_.alive(result))
      return no_text;
  }
  return d.negated ? either(std::move(ways)) : result;
}

/// The values that meet one keyword, or with `negated` do not; any_text if it has no say on this type.
expression scalar_schemas::keyword(const std::string& key, schema_id schema, schema_id value, bool negated,
                                   json_type type) {
  if (schema == terse_numbers_)
    return type == json_type::number ? terse_ : any_text;
  if (key == "type")
    return of_type(schema, value, negated, type);
  if (key == "const")
    return of_values({value}, negated, type);
  if (key == "enum") {
    if (doc_.at(value).what != json_kind::array)
      doc_.refuse(value, "`enum` must be a list");
    return of_values(doc_.at(value).items, negated, type);
  }
  if (type == json_type::number) {
    if (key == "minimum" || key == "maximum" || key == "exclusiveMinimum" || key == "exclusiveMaximum")
      return of_bound(schema, key, value, negated);
    if (key == "multipleOf")
      return of_multiple(value, negated);
  }
  if (type == json_type::string) {
    if (key == "minLength" || key == "maxLength")
      return of_length(schema, value, key == "minLength", negated);
    auto inner = any_text;
    if (key == "pattern") {
      if (doc_.at(value).what != json_kind::string)
        doc_.refuse(value, "`pattern` must be a string");
      inner = pattern(value, doc_.at(value).text);
    } else if (key == "format" && doc_.at(value).what == json_kind::string) {
      const auto& name = doc_.at(value).text;
      if (negated && format_has_more(name))
        doc_.refuse(value, "`format` `" + name + "` where it must not hold cannot be enforced");
      if (const auto p = format_pattern(name))
        inner = whole_pattern_in_json_string(regex_, *p);
    }
    if (inner != any_text)
      return negated ? regex_.difference(plain_strings_, inside(inner)) : inside(inner);
  }
  return combined(key, schema, value, negated, type);
}

expression scalar_schemas::of_type(schema_id schema, schema_id value, bool negated, json_type type) {
  const bool allowed = type_allows(doc_, schema, type);
  if (!allowed)
    return negated ? all_of_type(type) : no_text;
  const auto has = [&](std::string_view name) {
    const auto& n = doc_.at(value);
    return n.text == name || std::ranges::any_of(n.items, [&](auto i) { return doc_.at(i).text == name; });
  };
  if (type == json_type::number && !has("number"))
    return negated ? regex_.difference(decimals_, integral_) : integers_;
  return negated ? no_text : all_of_type(type);
}

expression scalar_schemas::constant(schema_id value) {
  const auto& n = doc_.at(value);
  switch (n.what) {
    case json_kind::null: return null_;
    case json_kind::boolean: return regex_.literal(n.truth ? "true" : "false");
    case json_kind::string: return quoted(n.text);
    case json_kind::number: {
      const auto [magnitude, minus] = decimal_of(n.text);
      const auto text = (minus ? "-" : "") + magnitude.whole;
      return magnitude.fraction.empty() ? regex_.literals({text, text + ".0"})
                                        : regex_.literal(text + "." + magnitude.fraction);
    }
    default: return no_text;
  }
}

expression scalar_schemas::of_values(const std::vector<schema_id>& values, bool negated, json_type type) {
  static constexpr json_kind kinds[] = {json_kind::null, json_kind::boolean, json_kind::number, json_kind::string};
  std::vector<expression> parts;
  std::vector<std::string> simple;
  for (const auto v : values) {
    const auto& n = doc_.at(v);
    if (n.what != kinds[static_cast<int>(type)])
      continue;
    if (type == json_type::number && negated)
      parts.push_back(regex_.intersection(compared(comparison::at_least, v), compared(comparison::at_most, v)));
    else if (type == json_type::string && std::ranges::none_of(n.text, [](unsigned char c) {
               return c < 0x20 || c == '"' || c == '\\' || c == '/';
             }))
      simple.push_back("\"" + n.text + "\"");
    else
      parts.push_back(constant(v));
  }
  parts.push_back(regex_.literals(std::move(simple)));
  const auto any = regex_.alternation(std::move(parts));
  if (!negated)
    return any;
  if (type == json_type::number)
    return any == no_text ? numbers_ : regex_.difference(decimals_, any);
  if (type == json_type::string)
    return any == no_text ? strings_ : regex_.difference(plain_strings_, any);
  return regex_.difference(all_of_type(type), any);
}

// -- numbers --------------------------------------------------------------------

expression scalar_schemas::of_bound(schema_id schema, const std::string& key, schema_id value, bool negated) {
  auto how = key == "minimum"   ? comparison::at_least
    : key == "maximum"          ? comparison::at_most
    : key == "exclusiveMinimum" ? comparison::greater
                                : comparison::less;
  if (key.starts_with("exclusive") &&
      doc_.at(value).what == json_kind::boolean) // draft 4: it modifies the other keyword
    return any_text;
  if (doc_.at(value).what != json_kind::number)
    doc_.refuse(value, "`" + key + "` must be a number");
  if (!key.starts_with("exclusive"))
    if (const auto strict = doc_.find(schema, key == "minimum" ? "exclusiveMinimum" : "exclusiveMaximum");
        strict != no_schema && doc_.at(strict).what == json_kind::boolean && doc_.at(strict).truth)
      how = how == comparison::at_least ? comparison::greater : comparison::less;
  if (negated)
    how = how == comparison::at_least ? comparison::less
      : how == comparison::at_most    ? comparison::greater
      : how == comparison::greater    ? comparison::at_most
                                      : comparison::at_least;
  return compared(how, value);
}

expression scalar_schemas::compared(comparison how, schema_id value) {
  const auto [magnitude, minus] = decimal_of(doc_.at(value).text);
  const bool zero = magnitude.whole == "0" && magnitude.fraction.empty();
  const bool upwards = how == comparison::at_least || how == comparison::greater;
  const bool strict = how == comparison::greater || how == comparison::less;
  const auto digit = regex_.bytes(byte_set::range('0', '9'));
  const auto any = regex_.concat(regex_.repeat(digit, 1, unlimited),
                                 regex_.optional(regex_.concat(regex_.literal("."), regex_.star(digit))));
  const auto sign = regex_.literal("-");
  const auto further = regex_.compared(strict ? comparison::greater : comparison::at_least, magnitude);
  const auto nearer = regex_.compared(strict ? comparison::less : comparison::at_most, magnitude);
  auto positive = no_text, negative = no_text; // the magnitudes allowed with either sign
  if (upwards) {
    positive = minus ? any : further;
    negative = minus || (zero && !strict) ? nearer : no_text;
  } else {
    positive = minus || (zero && strict) ? no_text : nearer;
    negative = minus || zero ? further : any;
  }
  return regex_.intersection(decimals_, regex_.alternation(positive, regex_.concat(sign, negative)));
}

expression scalar_schemas::of_multiple(schema_id value, bool negated) {
  if (doc_.at(value).what != json_kind::number || !(doc_.at(value).number > 0))
    doc_.refuse(value, "`multipleOf` must be a number above 0");
  const auto [step, minus] = decimal_of(doc_.at(value).text);
  const auto digits = step.whole + step.fraction;
  if (digits.size() > 17)
    doc_.refuse(value, "`multipleOf` must have at most 17 digits");
  const auto multiples = regex_.concat(
    regex_.optional(regex_.literal("-")),
    regex_.multiple_of(std::stoull(digits), static_cast<std::uint32_t>(step.fraction.size())));
  return negated ? regex_.difference(decimals_, multiples) : regex_.intersection(decimals_, multiples);
}

expression scalar_schemas::of_length(schema_id, schema_id value, bool least, bool negated) {
  const auto n = count_of(doc_, value, least ? "minLength" : "maxLength");
  const auto between = [&](std::uint32_t low, std::uint32_t high) {
    return inside(any_characters(regex_, text_encoding::json_string, low, high));
  };
  if (least != negated)
    return least ? (n == 0 ? strings_ : between(n, unlimited)) : between(n + 1, unlimited);
  if (least) // shorter than n
    return n == 0 ? no_text : between(0, n - 1);
  return between(0, n);
}

// -- combinations -----------------------------------------------------------------

expression scalar_schemas::combined(const std::string& key, schema_id schema, schema_id value, bool negated,
                                    json_type type) {
  if (key == "$ref")
    return of({doc_.target(schema), negated}, type);
  if (key == "not")
    return of({value, !negated}, type);
  if (key == "allOf" || key == "anyOf") {
    const bool meet = (key == "allOf") != negated;
    auto result = all_of_type(type);
    std::vector<expression> ways;
    for (const auto s : doc_.schemas_of(key, value))
      if (meet)
        result = both(result, of({s, negated}, type));
      else
        ways.push_back(of({s, negated}, type));
    return meet ? result : either(std::move(ways));
  }
  if (key == "oneOf") {
    const auto branches = doc_.schemas_of(key, value);
    std::vector<expression> yes, no, pairs;
    auto none = all_of_type(type);
    for (const auto s : branches) {
      yes.push_back(of({s, false}, type));
      for (std::size_t j = 0; j + 1 < yes.size(); ++j) {
        const auto shared = both(yes[j], yes.back());
        if (regex_.alive(shared))
          pairs.push_back(shared);
      }
    }
    if (!negated && pairs.empty())
      return either(std::move(yes));
    for (const auto s : branches) {
      no.push_back(of({s, true}, type));
      none = both(none, no.back());
    }
    if (negated) {
      pairs.push_back(none);
      return either(std::move(pairs));
    }
    std::vector<expression> ways;
    for (std::size_t i = 0; i < yes.size(); ++i) {
      auto only = yes[i];
      for (std::size_t j = 0; j < no.size(); ++j)
        if (j != i)
          only = both(only, no[j]);
      ways.push_back(only);
    }
    return either(std::move(ways));
  }
  if (key == "if") {
    const auto yes = of({value, false}, type), no = of({value, true}, type);
    const auto branch = [&](const char* name) {
      const auto s = doc_.find(schema, name);
      return s == no_schema ? (negated ? no_text : all_of_type(type)) : of({s, negated}, type);
    };
    return either(both(yes, branch("then")), both(no, branch("else")));
  }
  return any_text;
}

} // namespace troupe::guides
