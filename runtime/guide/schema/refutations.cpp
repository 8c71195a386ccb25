// The part of schema_shapes that lists the ways in which a value does not meet a schema, as schemas of their own.
#include "runtime/guide/schema/invented_keywords.hpp"
#include "runtime/guide/schema/shapes.hpp"

namespace troupe::guides {

using json_kind = schema_node::kind;

const std::vector<std::vector<demand>>& schema_shapes::refutation(schema_id schema, json_type type) {
  if (!refutations_.contains({schema, static_cast<int>(type)})) {
    std::vector<std::vector<demand>> ways;
    const bool lone = doc_.lone_references() && doc_.find(schema, "$ref") != no_schema;
    for (const auto& [key, value] : doc_.at(schema).members)
      if ((!lone || key == "$ref") && doc_.knows(schema, key) && refute_keyword(key, schema, value, ways, type)) {
        ways = {{{doc_.boolean(true)}}};
        break;
      }
    refutations_[{schema, static_cast<int>(type)}] = std::move(ways);
  }
  return refutations_.at({schema, static_cast<int>(type)});
}

/// The refutations of objects, with all ways that are about one member each joined to one, a need. So refutations do
/// not multiply.
std::vector<std::vector<demand>> schema_shapes::with_needs(schema_id schema) {
  if (const auto known = refutations_with_needs_.find(schema); known != refutations_with_needs_.end())
    return known->second;
  std::vector<schema_id> needs;
  std::vector<std::vector<demand>> ways;
  sort_ways(schema, 0, needs, ways);
  if (needs.size() == 1)
    ways.push_back({{needs.front()}});
  else if (!needs.empty())
    ways.push_back({{object_schema({{some_need, list_of(std::move(needs))}})}});
  return refutations_with_needs_[schema] = std::move(ways);
}

void schema_shapes::sort_ways(schema_id schema, int depth, std::vector<schema_id>& needs,
                              std::vector<std::vector<demand>>& others) {
  for (const auto& way : std::vector(refutation(schema, json_type::object))) {
    const auto d = way.size() == 1 ? way.front() : demand{no_schema};
    const bool is_object = d.schema != no_schema && doc_.at(d.schema).what == json_kind::object;
    if (is_object && d.negated && depth < 8)
      sort_ways(d.schema, depth + 1, needs, others);
    else if (is_object && !d.negated && !doc_.is_written(d.schema) && is_about_one_member(d.schema))
      needs.push_back(d.schema);
    else
      others.push_back(way);
  }
}

bool schema_shapes::is_about_one_member(schema_id invented) const {
  const auto& members = doc_.at(invented).members;
  const auto properties = doc_.find(invented, "properties");
  if (properties != no_schema)
    return doc_.at(properties).members.size() == 1 &&
      members.size() == (doc_.find(invented, "required") == no_schema ? 1 : 2);
  return members.size() == 1 &&
    (members.front().first == some_other || members.front().first == some_matching ||
     members.front().first == some_name);
}

/// Adds the refutations of one keyword. Returns true if no value of the type meets it.
bool schema_shapes::refute_keyword(const std::string& key, schema_id schema, schema_id value,
                                   std::vector<std::vector<demand>>& ways, json_type type) {
  const auto add = [&](std::vector<std::pair<std::string, schema_id>> members) {
    ways.push_back({{object_schema(std::move(members))}});
  };
  const auto negation_of = [&](schema_id s) { return object_schema({{"not", s}}); };
  const bool object = type == json_type::object, array = type == json_type::array;
  if (key == "type")
    return !type_allows(doc_, schema, type);
  if (key == "const" || key == "enum") {
    std::vector<demand> all;
    for (const auto v : key == "const" ? std::vector{value} : doc_.at(value).items)
      if (doc_.at(v).what == (object ? json_kind::object : json_kind::array))
        all.push_back({schema_of_constant(v), true});
    ways.push_back(std::move(all)); // empty: holds always
  } else if (key == "$ref")
    ways.push_back({{doc_.target(schema), true}});
  else if (key == "not")
    ways.push_back({{value}});
  else if (key == "allOf")
    for (const auto s : doc_.at(value).items)
      ways.push_back({{s, true}});
  else if (key == "anyOf" || key == "oneOf") {
    std::vector<demand> none;
    const auto& items = doc_.at(value).items;
    for (const auto s : items)
      none.push_back({s, true});
    ways.push_back(std::move(none));
    if (key == "oneOf")
      for (std::size_t i = 0; i < items.size(); ++i)
        for (std::size_t j = 0; j < i; ++j)
          if (!disjoint({{items[i]}}, {{items[j]}}))
            ways.push_back({{items[i]}, {items[j]}});
  } else if (key == "if") {
    if (const auto then = doc_.find(schema, "then"); then != no_schema)
      ways.push_back({{value}, {then, true}});
    if (const auto other = doc_.find(schema, "else"); other != no_schema)
      ways.push_back({{value, true}, {other, true}});
  } else if (object && key == "required") {
    for (const auto name : doc_.at(value).items)
      add({{"properties", object_schema({{doc_.at(name).text, doc_.boolean(false)}})}});
  } else if (object && key == "properties") {
    for (const auto& [name, s] : doc_.at(value).members)
      if (!(doc_.at(s).what == json_kind::boolean && doc_.at(s).truth))
        add({{"required", list_of({text(name)})}, {"properties", object_schema({{name, negation_of(s)}})}});
  } else if ((object && key == "minProperties") || (array && key == "minItems")) {
    if (const auto n = count_of(doc_, value, key); n > 0)
      add({{object ? "maxProperties" : "maxItems", number(n - 1)}});
  } else if ((object && key == "maxProperties") || (array && key == "maxItems"))
    add({{object ? "minProperties" : "minItems", number(count_of(doc_, value, key) + 1)}});
  else if (array && (key == "prefixItems" || key == "items") && doc_.at(value).what == json_kind::array) {
    std::vector<schema_id> before;
    for (const auto s : doc_.at(value).items) {
      auto items = before;
      items.push_back(negation_of(s));
      before.push_back(doc_.boolean(true));
      const auto size = static_cast<std::uint32_t>(items.size());
      add({{"minItems", number(size)}, {"prefixItems", list_of(std::move(items))}});
    }
  } else if (array && key == "contains") {
    const auto count = [&](const char* name, std::uint32_t otherwise) {
      const auto n = doc_.find(schema, name);
      return n == no_schema ? otherwise : count_of(doc_, n, name);
    };
    const auto least = count("minContains", 1), most = count("maxContains", no_bound);
    if (least == 1)
      add({{"items", negation_of(value)}});
    else if (least > 1)
      add({{"contains", value}, {"minContains", number(0)}, {"maxContains", number(least - 1)}});
    if (most != no_bound)
      add({{"contains", value}, {"minContains", number(most + 1)}});
  } else if (object && (key == "dependentRequired" || key == "dependencies" || key == "dependentSchemas")) {
    for (const auto& [name, then] : doc_.at(value).members) {
      const demand present{object_schema({{"required", list_of({text(name)})}})};
      const auto needed = doc_.at(then).what == json_kind::array ? object_schema({{"required", then}}) : then;
      ways.push_back({present, {needed, true}});
    }
  } else
    refute_neighbours(key, schema, value, ways, type);
  return false;
}

/// Adds the refutations of keywords about whatever their neighbours do not name.
void schema_shapes::refute_neighbours(const std::string& key, schema_id schema, schema_id value,
                                      std::vector<std::vector<demand>>& ways, json_type type) {
  const auto& n = doc_.at(value);
  const auto add = [&](std::vector<std::pair<std::string, schema_id>> members) {
    ways.push_back({{object_schema(std::move(members))}});
  };
  if (n.what == json_kind::boolean && n.truth == (key != "uniqueItems"))
    return;
  if (type == json_type::object) {
    if (key == "additionalProperties")
      add({{some_other, schema}});
    else if (key == "patternProperties") {
      for (const auto& member : n.members)
        add({{some_matching, object_schema({member})}});
    } else if (key == "propertyNames")
      add({{some_name, value}});
  } else if ((key == "items" && n.what != json_kind::array) || key == "additionalItems") {
    const auto list = doc_.find(schema, key == "items" ? "prefixItems" : "items");
    const bool is_list = list != no_schema && doc_.at(list).what == json_kind::array;
    if (key == "additionalItems" && !is_list) // has no effect
      return;
    const auto from = is_list ? doc_.at(list).items.size() : 0;
    add({{some_item, value}, {first_item, number(static_cast<std::uint32_t>(from))}});
  }
  if (key == "$dynamicRef" || key == "$recursiveRef" || (key == "unevaluatedProperties" && type == json_type::object) ||
      ((key == "unevaluatedItems" || key == "uniqueItems") && type == json_type::array))
    doc_.refuse(schema,
                "`" + key +
                  "` where it must not hold (under `not`, or in a `oneOf` whose branches may overlap) "
                  "cannot be enforced");
}

// -- invented schemas -------------------------------------------------------------

schema_id schema_shapes::object_schema(std::vector<std::pair<std::string, schema_id>> members) {
  return doc_.add({.what = json_kind::object, .members = std::move(members)});
}
schema_id schema_shapes::list_of(std::vector<schema_id> items) {
  return doc_.add({.what = json_kind::array, .items = std::move(items)});
}
schema_id schema_shapes::number(std::uint32_t n) {
  return doc_.add({.what = json_kind::number, .text = std::to_string(n), .number = static_cast<double>(n)});
}
schema_id schema_shapes::text(const std::string& s) { return doc_.add({.what = json_kind::string, .text = s}); }

/// A schema that an object or list and nothing else meets.
schema_id schema_shapes::schema_of_constant(schema_id value) {
  const auto [known, fresh] = constants_.try_emplace(value, no_schema);
  if (!fresh)
    return known->second;
  const auto n = doc_.at(value);
  const auto constant = [&](schema_id v) { return object_schema({{"const", v}}); };
  schema_id result;
  if (n.what == json_kind::object) {
    std::vector<std::pair<std::string, schema_id>> names;
    std::vector<schema_id> required;
    for (const auto& [name, v] : n.members) {
      names.emplace_back(name, constant(v));
      required.push_back(text(name));
    }
    result = object_schema({{"type", text("object")},
                            {"properties", object_schema(std::move(names))},
                            {"required", list_of(std::move(required))},
                            {"maxProperties", number(static_cast<std::uint32_t>(n.members.size()))}});
  } else {
    std::vector<schema_id> items;
    for (const auto v : n.items)
      items.push_back(constant(v));
    const auto size = number(static_cast<std::uint32_t>(items.size()));
    result = object_schema(
      {{"type", text("array")}, {"prefixItems", list_of(std::move(items))}, {"minItems", size}, {"maxItems", size}});
  }
  return constants_[value] = result;
}

} // namespace troupe::guides
