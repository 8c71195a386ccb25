#include "runtime/guide/schema/shapes.hpp"

#include "runtime/support/json_text.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>

namespace troupe::guides {

using json_kind = schema_node::kind;

namespace {

// Keywords of invented schemas alone (`schema_document::is_written`): what an object or array has where another schema's
// keyword does not hold.
constexpr const char* some_other = "\1other";       // a member beside those that this schema names
constexpr const char* some_matching = "\1matching"; // of its one member: a name that matches, a value that fails
constexpr const char* some_name = "\1name";         // a name that does not meet this schema
constexpr const char* some_item = "\1item";         // an item that does not, from the place `first_item` on
constexpr const char* first_item = "\1from";
constexpr const char* some_need =
  "\1need"; // one of these schemas holds, which are of the kinds above or about one member

constexpr std::size_t most_multiplied = 128; // alternatives, before refutations become needs

struct too_many_alternatives {};

} // namespace

/// An alternative under way.
struct schema_shapes::progress {
  json_type type;
  std::vector<demand> open;                           // not looked at yet
  std::vector<std::vector<std::vector<demand>>> ways; // of each group, one way must hold: all of its demands
  std::set<demand> done;
  shape made;
};

std::vector<shape> schema_shapes::of(const std::vector<demand>& all, json_type type) {
  if (++depth_ > 100)
    throw failure(errc::bad_request, "the JSON Schema's combinations are nested deeper than 100");
  const auto most = most_;
  const bool needs = needs_;
  std::vector<shape> out;
  try {
    needs_ = false;
    out = alternatives(all, type, std::min(most_multiplied, limits_.alternatives));
  } catch (const too_many_alternatives&) {
    needs_ = type == json_type::object;
    try {
      out = alternatives(all, type, limits_.alternatives);
    } catch (const too_many_alternatives&) {
      too_large("alternatives of one value", limits_.alternatives);
    }
  }
  most_ = most;
  needs_ = needs;
  --depth_;
  return out;
}

std::vector<shape> schema_shapes::alternatives(const std::vector<demand>& all, json_type type, std::size_t most) {
  const auto depth = depth_;
  most_ = most;
  std::vector<shape> out;
  try {
    expand({type, all, {}, {}, {}}, out);
  } catch (const too_many_alternatives&) {
    depth_ = depth;
    throw;
  }
  return out;
}

void schema_shapes::expand(progress p, std::vector<shape>& out) {
  meter::charge(4 + p.ways.size());
  if (++steps_ > limits_.rules)
    too_large("alternatives in the JSON Schema", limits_.rules);
  while (!p.open.empty()) {
    const auto d = p.open.back();
    p.open.pop_back();
    if (p.done.insert(d).second && !apply(d, p))
      return;
  }
  if (p.ways.empty()) {
    if (p.made.least > p.made.most)
      return;
    if (out.size() >= most_)
      throw too_many_alternatives();
    out.push_back(std::move(p.made));
    return;
  }
  // The group with the fewest ways first: contradictions show early.
  const auto group = std::ranges::min_element(p.ways, {}, [](const auto& g) { return g.size(); });
  const auto ways = std::move(*group);
  p.ways.erase(group);
  for (const auto& way : ways) {
    auto branch = p;
    branch.open.insert(branch.open.end(), way.rbegin(), way.rend());
    expand(std::move(branch), out);
  }
}

/// False if no value can meet the demand together with the others.
bool schema_shapes::apply(const demand& d, progress& p) {
  const auto& n = doc_.at(d.schema);
  if (n.what == json_kind::boolean)
    return n.truth != d.negated;
  if (n.what != json_kind::object)
    doc_.refuse(d.schema, "a schema must be an object or a boolean");
  if (d.negated)
    return refute(d.schema, p);
  const bool lone = doc_.lone_references() && doc_.find(d.schema, "$ref") != no_schema;
  for (const auto& [key, value] : n.members)
    if ((!lone || key == "$ref") && doc_.knows(d.schema, key) && !apply_keyword(key, d.schema, value, p))
      return false;
  if (lone)
    return true;
  if (p.type == json_type::object) {
    object_facet facet;
    if (const auto names = doc_.find(d.schema, "properties"); names != no_schema) {
      if (doc_.at(names).what != json_kind::object)
        doc_.refuse(names, "`properties` must be an object");
      facet.declares = doc_.is_written(d.schema);
      for (const auto& [name, s] : doc_.at(names).members)
        facet.names.emplace_back(name, demand{s});
    }
    if (const auto patterns = doc_.find(d.schema, "patternProperties"); patterns != no_schema)
      for (const auto& [pattern, s] : doc_.at(patterns).members)
        facet.patterns.emplace_back(scalars_.pattern(s, pattern), demand{s});
    if (const auto rest = doc_.find(d.schema, "additionalProperties"); rest != no_schema)
      facet.rest = demand{rest};
    else if (const auto other = doc_.find(d.schema, "unevaluatedProperties"); other != no_schema)
      facet.rest = demand{other};
    facet.by_name.resize(facet.names.size());
    std::iota(facet.by_name.begin(), facet.by_name.end(), 0u);
    meter::charge(16 * facet.names.size());
    std::ranges::sort(facet.by_name, {}, [&](auto i) { return std::pair(std::string_view(facet.names[i].first), i); });
    if (!facet.names.empty() || !facet.patterns.empty() || facet.rest || facet.declares)
      p.made.objects.push_back(std::make_shared<const object_facet>(std::move(facet)));
  } else {
    array_facet facet;
    auto items = doc_.find(d.schema, "items");
    auto first = doc_.find(d.schema, "prefixItems");
    if (first == no_schema && items != no_schema && doc_.at(items).what == json_kind::array) {
      first = items;
      items = doc_.find(d.schema, "additionalItems");
    }
    if (items == no_schema)
      items = doc_.find(d.schema, "unevaluatedItems");
    if (first != no_schema)
      for (const auto s : doc_.at(first).items)
        facet.first.push_back({s});
    if (items != no_schema)
      facet.rest = demand{items};
    if (!facet.first.empty() || facet.rest)
      p.made.arrays.push_back(std::move(facet));
  }
  return true;
}

bool schema_shapes::apply_keyword(const std::string& key, schema_id schema, schema_id value, progress& p) {
  const auto list = [&]() -> const std::vector<schema_id>& {
    if (doc_.at(value).what != json_kind::array || doc_.at(value).items.empty())
      doc_.refuse(value, "`" + key + "` must be a list of schemas");
    return doc_.at(value).items;
  };
  if (key == "type")
    return type_allows(doc_, schema, p.type);
  if (key == "const" || key == "enum") {
    const auto wanted = p.type == json_type::object ? json_kind::object : json_kind::array;
    std::vector<std::vector<demand>> ways;
    for (const auto v : key == "const" ? std::vector{value} : doc_.at(value).items)
      if (doc_.at(v).what == wanted)
        ways.push_back({{schema_of_constant(v)}});
    if (ways.empty())
      return false;
    p.ways.push_back(std::move(ways));
  } else if (key == "$ref")
    p.open.push_back({doc_.target(schema)});
  else if (key == "allOf") {
    const auto& all = list();
    for (auto i = all.size(); i-- > 0;) // the first is looked at first: it names properties first
      p.open.push_back({all[i]});
  } else if (key == "anyOf") {
    std::vector<std::vector<demand>> ways;
    for (const auto s : list())
      ways.push_back({{s}});
    p.ways.push_back(std::move(ways));
  } else if (key == "oneOf") {
    list();
    one_of(value, p);
  } else if (key == "not")
    p.open.push_back({value, true});
  else if (key == "if") {
    const auto then = doc_.find(schema, "then"), otherwise = doc_.find(schema, "else");
    const auto or_true = [&](schema_id s) { return demand{s == no_schema ? doc_.boolean(true) : s}; };
    if (then != no_schema || otherwise != no_schema)
      p.ways.push_back({{{value}, or_true(then)}, {{value, true}, or_true(otherwise)}});
  } else if (key == "$dynamicRef" || key == "$recursiveRef")
    doc_.refuse(schema, "`" + key + "` is not supported");
  else if (key == "unevaluatedProperties" || key == "unevaluatedItems") {
    for (const auto* other : {"$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "not", "contains",
                              "additionalProperties", "prefixItems"})
      if (doc_.find(schema, other) != no_schema)
        doc_.refuse(schema, "`" + key + "` beside `" + other + "` is not supported");
  } else if (p.type == json_type::object)
    object_keyword(key, schema, value, p);
  else
    array_keyword(key, schema, value, p);
  return true;
}

/// Members that must be there so that another schema does not hold.
bool schema_shapes::needed_keyword(const std::string& key, schema_id value, object_need& need) {
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
void schema_shapes::add_need(schema_id way, object_need& need) {
  const auto& [key, value] = doc_.at(way).members.front();
  if (needed_keyword(key, value, need))
    return;
  const auto& [name, s] = doc_.at(doc_.find(way, "properties")).members.front();
  if (doc_.find(way, "required") == no_schema)
    need.absent.push_back(name);
  else
    need.ways.push_back({scalars_.quoted(name), {s}});
}

void schema_shapes::object_keyword(const std::string& key, schema_id schema, schema_id value, progress& p) {
  if (object_need need; !doc_.is_written(schema) && needed_keyword(key, value, need)) {
    p.made.needs.push_back(std::move(need));
    return;
  }
  const auto names = [&](schema_id v) {
    if (doc_.at(v).what != json_kind::array)
      doc_.refuse(v, "`" + key + "` must be a list of names");
    std::vector<std::string> all;
    for (const auto i : doc_.at(v).items) {
      if (doc_.at(i).what != json_kind::string)
        doc_.refuse(v, "`" + key + "` must be a list of names");
      all.push_back(doc_.at(i).text);
    }
    return all;
  };
  if (key == "required") {
    for (auto& name : names(value))
      p.made.required.insert(std::move(name));
  } else if (key == "minProperties")
    p.made.least = std::max(p.made.least, count_of(doc_, value, key));
  else if (key == "maxProperties")
    p.made.most = std::min(p.made.most, count_of(doc_, value, key));
  else if (key == "propertyNames")
    p.made.name_demands.push_back({value});
  else if (key == "dependencies" || key == "dependentRequired" || key == "dependentSchemas") {
    for (const auto& [name, then] : doc_.at(value).members) {
      const auto absent = object_schema({{"properties", object_schema({{name, doc_.boolean(false)}})}});
      std::vector<schema_id> needed{text(name)};
      auto way = std::vector<demand>{};
      if (doc_.at(then).what == json_kind::array)
        for (const auto& other : names(then))
          needed.push_back(text(other));
      else
        way.push_back({then});
      way.push_back({object_schema({{"required", list_of(std::move(needed))}})});
      p.ways.push_back({{{absent}}, std::move(way)});
    }
  }
}

void schema_shapes::array_keyword(const std::string& key, schema_id schema, schema_id value, progress& p) {
  if (key == "minItems")
    p.made.least = std::max(p.made.least, count_of(doc_, value, key));
  else if (key == "maxItems")
    p.made.most = std::min(p.made.most, count_of(doc_, value, key));
  else if (key == "uniqueItems") {
    p.made.unique |= doc_.at(value).truth;
    p.made.unique_at = schema;
  } else if (key == some_item && !doc_.is_written(schema)) {
    p.made.contains.push_back({.item = {value, true}, .from = count_of(doc_, doc_.find(schema, first_item), "items")});
  } else if (key == "contains") {
    contained c{.item = {value}};
    if (const auto n = doc_.find(schema, "minContains"); n != no_schema)
      c.least = count_of(doc_, n, "minContains");
    if (const auto n = doc_.find(schema, "maxContains"); n != no_schema)
      c.most = count_of(doc_, n, "maxContains");
    if (c.least > 0 || c.most != no_bound)
      p.made.contains.push_back(c);
  }
}

/// Exactly one: one holds, and each of the others does not, unless it cannot hold beside it.
void schema_shapes::one_of(schema_id value, progress& p) {
  const auto branches = doc_.at(value).items;
  std::vector<std::vector<demand>> ways;
  for (const auto yes : branches) {
    std::vector<demand> way{{yes}};
    if (const auto [known, fresh] = impossible_.try_emplace({yes, p.type}, false); fresh)
      known->second = of({{yes}}, p.type).empty();
    if (impossible_.at({yes, p.type}))
      continue;
    for (const auto no : branches)
      if (no != yes && !disjoint({{yes}}, {{no}}))
        way.push_back({no, true});
    ways.push_back(std::move(way));
  }
  if (ways.empty())
    ways.push_back({{doc_.boolean(false)}});
  p.ways.push_back(std::move(ways));
}

// -- negation -------------------------------------------------------------------

/// Adds the ways in which a value does not meet the schema.
bool schema_shapes::refute(schema_id schema, progress& p) {
  const auto ways = needs_ ? with_needs(schema) : refutation(schema, p.type);
  if (ways.empty())
    return false;
  p.ways.push_back(ways);
  return true;
}

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

/// The same of objects, with all ways that are about one member each as one: a need. So that what is refuted does not
/// multiply.
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

/// The same for one keyword; true if no value of the type meets it.
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

/// The same for keywords about whatever their neighbours do not name.
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

// -- disjointness -----------------------------------------------------------------

std::vector<demand> demands_of_name(const shape& s, const std::string& name, expressions& regex) {
  std::vector<demand> all;
  std::string inside = json_text(name);
  inside = inside.substr(1, inside.size() - 2);
  for (const auto& f : s.objects) {
    const auto same = std::ranges::equal_range(f->by_name, std::string_view(name), {},
                                               [&](auto i) { return std::string_view(f->names[i].first); });
    for (const auto i : same)
      all.push_back(f->names[i].second);
    bool named = !same.empty();
    for (const auto& [pattern, d] : f->patterns)
      if (regex.matches(pattern, inside)) {
        all.push_back(d);
        named = true;
      }
    if (!named && f->rest)
      all.push_back(*f->rest);
  }
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  return all;
}

bool schema_shapes::disjoint(const std::vector<demand>& a, const std::vector<demand>& b, int depth) {
  if (depth > 3)
    return false;
  const auto [known, fresh] = disjoint_.try_emplace({a, b, depth}, false);
  if (fresh)
    known->second = find_disjoint(a, b, depth);
  return known->second;
}

bool schema_shapes::find_disjoint(const std::vector<demand>& a, const std::vector<demand>& b, int depth) {
  auto& regex = scalars_.regex();
  for (const auto type : {json_type::null, json_type::boolean, json_type::number, json_type::string})
    if (regex.alive(scalars_.both(scalars_.of(a, type), scalars_.of(b, type))))
      return false;
  for (const auto type : {json_type::object, json_type::array}) {
    const auto left = of(a, type);
    if (left.empty())
      continue;
    for (const auto& y : of(b, type))
      for (const auto& x : left)
        if (!disjoint_shapes(x, y, type, depth))
          return false;
  }
  return true;
}

bool schema_shapes::disjoint_shapes(const shape& a, const shape& b, json_type type, int depth) {
  if (a.least > b.most || b.least > a.most)
    return true;
  if (type == json_type::object) {
    auto required = a.required;
    required.insert(b.required.begin(), b.required.end());
    for (const auto& name : required)
      if (disjoint(demands_of_name(a, name, scalars_.regex()), demands_of_name(b, name, scalars_.regex()), depth + 1))
        return true;
    return false;
  }
  const auto demands = [](const shape& s, std::size_t i) {
    std::vector<demand> all;
    for (const auto& f : s.arrays)
      if (i < f.first.size())
        all.push_back(f.first[i]);
      else if (f.rest)
        all.push_back(*f.rest);
    return all;
  };
  const auto sure = std::min<std::uint32_t>(std::max(a.least, b.least), 16); // items that either has
  for (std::uint32_t i = 0; i < sure; ++i)
    if (disjoint(demands(a, i), demands(b, i), depth + 1))
      return true;
  return false;
}

} // namespace troupe::guides
