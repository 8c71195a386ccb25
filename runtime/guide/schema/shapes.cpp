#include "runtime/guide/schema/shapes.hpp"

#include "runtime/support/json/json_text.hpp"

#include <algorithm>
#include <numeric>
#include <string_view>

namespace troupe::guides {

using json_kind = schema_node::kind;

namespace {

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
  if (key == "type")
    return type_allows(doc_, schema, p.type);
  if (key == "const" || key == "enum") {
    const auto wanted = p.type == json_type::object ? json_kind::object : json_kind::array;
    std::vector<std::vector<demand>> ways;
    for (const auto v : key == "const" ? std::vector{value} : doc_.at(value).items)
      if (doc_.at(v).what == wanted)
        ways.push_back({{invented_.of_constant(v)}});
    if (ways.empty())
      return false;
    p.ways.push_back(std::move(ways));
  } else if (key == "$ref")
    p.open.push_back({doc_.target(schema)});
  else if (key == "allOf") {
    const auto& all = doc_.schemas_of(key, value);
    for (auto i = all.size(); i-- > 0;) // the first is looked at first: it names properties first
      p.open.push_back({all[i]});
  } else if (key == "anyOf") {
    std::vector<std::vector<demand>> ways;
    for (const auto s : doc_.schemas_of(key, value))
      ways.push_back({{s}});
    p.ways.push_back(std::move(ways));
  } else if (key == "oneOf") {
    doc_.schemas_of(key, value);
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

void schema_shapes::object_keyword(const std::string& key, schema_id schema, schema_id value, progress& p) {
  if (object_need need; !doc_.is_written(schema) && refutations_.add_need(key, value, need)) {
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
      const auto absent = invented_.object({{"properties", invented_.object({{name, doc_.boolean(false)}})}});
      std::vector<schema_id> needed{invented_.text(name)};
      auto way = std::vector<demand>{};
      if (doc_.at(then).what == json_kind::array)
        for (const auto& other : names(then))
          needed.push_back(invented_.text(other));
      else
        way.push_back({then});
      way.push_back({invented_.object({{"required", invented_.list_of(std::move(needed))}})});
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
      if (no != yes && !disjoint_.disjoint({{yes}}, {{no}}))
        way.push_back({no, true});
    ways.push_back(std::move(way));
  }
  if (ways.empty())
    ways.push_back({{doc_.boolean(false)}});
  p.ways.push_back(std::move(ways));
}

/// Adds the ways in which a value does not meet the schema.
bool schema_shapes::refute(schema_id schema, progress& p) {
  const auto ways = needs_ ? refutations_.with_needs(schema) : refutations_.of(schema, p.type);
  if (ways.empty())
    return false;
  p.ways.push_back(ways);
  return true;
}

// -- what a shape demands ---------------------------------------------------------

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

std::vector<demand> demands_of_item(const shape& s, std::size_t place) {
  std::vector<demand> all;
  for (const auto& f : s.arrays)
    if (place < f.first.size())
      all.push_back(f.first[place]);
    else if (f.rest)
      all.push_back(*f.rest);
  return all;
}

} // namespace troupe::guides
