#include "runtime/guide/schema/refutations.hpp"

#include "runtime/guide/schema/disjointness.hpp"

namespace troupe::guides {

using json_kind = schema_node::kind;

const std::vector<std::vector<demand>>& schema_refutations::of(schema_id schema, json_type type) {
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

std::vector<std::vector<demand>> schema_refutations::with_needs(schema_id schema) {
  if (const auto known = refutations_with_needs_.find(schema); known != refutations_with_needs_.end())
    return known->second;
  std::vector<schema_id> needs;
  std::vector<std::vector<demand>> ways;
  sort_ways(schema, 0, needs, ways);
  if (needs.size() == 1)
    ways.push_back({{needs.front()}});
  else if (!needs.empty())
    ways.push_back({{invented_.object({{some_need, invented_.list_of(std::move(needs))}})}});
  return refutations_with_needs_[schema] = std::move(ways);
}

void schema_refutations::sort_ways(schema_id schema, int depth, std::vector<schema_id>& needs,
                                   std::vector<std::vector<demand>>& others) {
  for (const auto& way : std::vector(of(schema, json_type::object))) {
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

bool schema_refutations::is_about_one_member(schema_id invented) const {
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
bool schema_refutations::refute_keyword(const std::string& key, schema_id schema, schema_id value,
                                        std::vector<std::vector<demand>>& ways, json_type type) {
  const auto add = [&](std::vector<std::pair<std::string, schema_id>> members) {
    ways.push_back({{invented_.object(std::move(members))}});
  };
  const auto negation_of = [&](schema_id s) { return invented_.object({{"not", s}}); };
  const bool object = type == json_type::object, array = type == json_type::array;
  if (key == "type")
    return !type_allows(doc_, schema, type);
  if (key == "const" || key == "enum") {
    std::vector<demand> all;
    for (const auto v : key == "const" ? std::vector{value} : doc_.at(value).items)
      if (doc_.at(v).what == (object ? json_kind::object : json_kind::array))
        all.push_back({invented_.of_constant(v), true});
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
          if (!disjoint_.disjoint({{items[i]}}, {{items[j]}}))
            ways.push_back({{items[i]}, {items[j]}});
  } else if (key == "if") {
    if (const auto then = doc_.find(schema, "then"); then != no_schema)
      ways.push_back({{value}, {then, true}});
    if (const auto other = doc_.find(schema, "else"); other != no_schema)
      ways.push_back({{value, true}, {other, true}});
  } else if (object && key == "required") {
    for (const auto name : doc_.at(value).items)
      add({{"properties", invented_.object({{doc_.at(name).text, doc_.boolean(false)}})}});
  } else if (object && key == "properties") {
    for (const auto& [name, s] : doc_.at(value).members)
      if (!(doc_.at(s).what == json_kind::boolean && doc_.at(s).truth))
        add({{"required", invented_.list_of({invented_.text(name)})},
             {"properties", invented_.object({{name, negation_of(s)}})}});
  } else if ((object && key == "minProperties") || (array && key == "minItems")) {
    if (const auto n = count_of(doc_, value, key); n > 0)
      add({{object ? "maxProperties" : "maxItems", invented_.number(n - 1)}});
  } else if ((object && key == "maxProperties") || (array && key == "maxItems"))
    add({{object ? "minProperties" : "minItems", invented_.number(count_of(doc_, value, key) + 1)}});
  else if (array && (key == "prefixItems" || key == "items") && doc_.at(value).what == json_kind::array) {
    std::vector<schema_id> before;
    for (const auto s : doc_.at(value).items) {
      auto items = before;
      items.push_back(negation_of(s));
      before.push_back(doc_.boolean(true));
      const auto size = static_cast<std::uint32_t>(items.size());
      add({{"minItems", invented_.number(size)}, {"prefixItems", invented_.list_of(std::move(items))}});
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
      add({{"contains", value}, {"minContains", invented_.number(0)}, {"maxContains", invented_.number(least - 1)}});
    if (most != no_bound)
      add({{"contains", value}, {"minContains", invented_.number(most + 1)}});
  } else if (object && (key == "dependentRequired" || key == "dependencies" || key == "dependentSchemas")) {
    for (const auto& [name, then] : doc_.at(value).members) {
      const demand present{invented_.object({{"required", invented_.list_of({invented_.text(name)})}})};
      const auto needed = doc_.at(then).what == json_kind::array ? invented_.object({{"required", then}}) : then;
      ways.push_back({present, {needed, true}});
    }
  } else
    refute_neighbours(key, schema, value, ways, type);
  return false;
}

/// Adds the refutations of keywords about whatever their neighbours do not name.
void schema_refutations::refute_neighbours(const std::string& key, schema_id schema, schema_id value,
                                           std::vector<std::vector<demand>>& ways, json_type type) {
  const auto& n = doc_.at(value);
  const auto add = [&](std::vector<std::pair<std::string, schema_id>> members) {
    ways.push_back({{invented_.object(std::move(members))}});
  };
  if (n.what == json_kind::boolean && n.truth == (key != "uniqueItems"))
    return;
  if (type == json_type::object) {
    if (key == "additionalProperties")
      add({{some_other, schema}});
    else if (key == "patternProperties") {
      for (const auto& member : n.members)
        add({{some_matching, invented_.object({member})}});
    } else if (key == "propertyNames")
      add({{some_name, value}});
  } else if ((key == "items" && n.what != json_kind::array) || key == "additionalItems") {
    const auto list = doc_.find(schema, key == "items" ? "prefixItems" : "items");
    const bool is_list = list != no_schema && doc_.at(list).what == json_kind::array;
    if (key == "additionalItems" && !is_list) // has no effect
      return;
    const auto from = is_list ? doc_.at(list).items.size() : 0;
    add({{some_item, value}, {first_item, invented_.number(static_cast<std::uint32_t>(from))}});
  }
  if (key == "$dynamicRef" || key == "$recursiveRef" || (key == "unevaluatedProperties" && type == json_type::object) ||
      ((key == "unevaluatedItems" || key == "uniqueItems") && type == json_type::array))
    doc_.refuse(schema,
                "`" + key +
                  "` where it must not hold (under `not`, or in a `oneOf` whose branches may overlap) "
                  "cannot be enforced");
}

// -- needs of objects -------------------------------------------------------------

bool schema_refutations::add_need(const std::string& key, schema_id value, object_need& need) {
  if (key == some_other) {
    std::vector<expression> named;
    if (const auto names = doc_.find(value, "properties"); names != no_schema)
      for (const auto& [name, s] : doc_.at(names).members)
        named.push_back(scalars_.quoted(name));
    if (const auto patterns = doc_.find(value, "patternProperties"); patterns != no_schema)
      for (const auto& [pattern, s] : doc_.at(patterns).members)
        named.push_back(scalars_.inside(scalars_.pattern(s, pattern)));
    auto names = scalars_.plain_strings();
    if (!named.empty())
      names = scalars_.regex().difference(names, scalars_.regex().alternation(std::move(named)));
    need.ways.push_back({names, {doc_.find(value, "additionalProperties"), true}});
  } else if (key == some_matching) {
    const auto& [pattern, s] = doc_.at(value).members.front();
    need.ways.push_back({scalars_.inside(scalars_.pattern(s, pattern)), {s, true}});
  } else if (key == some_name)
    need.ways.push_back({scalars_.of({value, true}, json_type::string), {doc_.boolean(true)}});
  else if (key == some_need) {
    for (const auto way : doc_.at(value).items)
      add_need(way, need);
    return true;
  } else
    return false;
  need.of_others = true;
  return true;
}

/// An invented schema about one member.
void schema_refutations::add_need(schema_id way, object_need& need) {
  const auto& [key, value] = doc_.at(way).members.front();
  if (add_need(key, value, need))
    return;
  const auto& [name, s] = doc_.at(doc_.find(way, "properties")).members.front();
  if (doc_.find(way, "required") == no_schema)
    need.absent.push_back(name);
  else
    need.ways.push_back({scalars_.quoted(name), {s}});
}

} // namespace troupe::guides
