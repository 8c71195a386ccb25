#include "runtime/guide/schema/schema_document.hpp"

#include "runtime/support/json/json.hpp"
#include "runtime/support/json/json_digits.hpp"
#include "runtime/support/text/percent_encoding.hpp"
#include "runtime/support/text/utf8.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace troupe::guides {

namespace {

constexpr std::size_t deepest = 200;

/// The shortest digits that mean this double. Its fixed form has more from 2^53 on.
std::string shortest(double v) {
  std::array<char, 40> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), v, std::chars_format::scientific).ptr;
  return json::without_exponent({text.data(), end});
}

std::string escaped_key(std::string_view key) {
  std::string out;
  for (const char c : key)
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  return out;
}

/// `reference` as seen from `base`, both without fragments.
std::string resolved(const std::string& base, const std::string& reference) {
  if (reference.empty())
    return base;
  if (reference.find("://") != reference.npos || reference.starts_with("urn:"))
    return reference;
  const auto authority = base.find("://");
  if (reference.front() == '/') {
    const auto path = authority == base.npos ? 0 : base.find('/', authority + 3);
    return (path == base.npos ? base : base.substr(0, path)) + reference;
  }
  const auto slash = base.rfind('/');
  if (slash == base.npos || (authority != base.npos && slash < authority + 3))
    return authority == base.npos ? reference : base + "/" + reference;
  return base.substr(0, slash + 1) + reference;
}

} // namespace

std::pair<decimal, bool> decimal_of(std::string_view text) {
  const bool minus = text.starts_with('-');
  if (minus)
    text.remove_prefix(1);
  const auto point = std::min(text.find('.'), text.size());
  decimal d{std::string(text.substr(0, point)),
            point < text.size() ? std::string(text.substr(point + 1)) : std::string()};
  d.whole.erase(0, std::min(d.whole.find_first_not_of('0'), d.whole.size() - 1));
  while (!d.fraction.empty() && d.fraction.back() == '0')
    d.fraction.pop_back();
  return {d, minus && !(d.whole == "0" && d.fraction.empty())};
}

schema_document::schema_document(std::string_view text) {
  const auto parsed = json::document::parse(text, "the JSON Schema", errc::bad_request);
  read(parsed.root(), no_schema, 0, 0);
  const auto truth = [&](bool t) {
    schema_node n{.what = schema_node::kind::boolean, .truth = t};
    return add(std::move(n));
  };
  true_ = truth(true);
  false_ = truth(false);
  resolve();
}

schema_id schema_document::add(schema_node n) {
  nodes_.push_back(std::move(n));
  return static_cast<schema_id>(nodes_.size() - 1);
}

std::string schema_document::path(schema_id s) const {
  const auto parent = nodes_[s].parent;
  if (parent == no_schema)
    return s == root() ? "#" : "";
  const auto& in = nodes_[parent];
  const auto place = nodes_[s].place;
  return path(parent) + "/" +
    (in.what == schema_node::kind::array ? std::to_string(place) : escaped_key(in.members[place].first));
}

std::vector<schema_id> schema_document::schemas_of(const std::string& keyword, schema_id value) const {
  if (at(value).what != schema_node::kind::array || at(value).items.empty())
    refuse(value, "`" + keyword + "` must be a list of schemas");
  return at(value).items;
}

void schema_document::refuse(schema_id where, std::string_view what) const {
  const auto at = path(where);
  throw failure(errc::bad_request, "JSON Schema" + (at.empty() ? "" : " at `" + at + "`") + ": " + std::string(what));
}

template <class Element>
schema_id schema_document::read(const Element& e, schema_id parent, std::size_t place, std::size_t depth) {
  using type = simdjson::dom::element_type;
  using kind = schema_node::kind;
  if (depth > deepest)
    throw failure(errc::bad_request, "the JSON Schema is nested deeper than " + std::to_string(deepest));
  const auto id = add({.parent = parent, .place = static_cast<std::uint32_t>(place)});
  switch (e.type()) {
    case type::NULL_VALUE: break;
    case type::BOOL:
      nodes_[id].what = kind::boolean;
      nodes_[id].truth = bool(e);
      break;
    case type::STRING:
      nodes_[id].what = kind::string;
      nodes_[id].text = std::string_view(e);
      if (!is_utf8(nodes_[id].text))
        refuse(id, "has a string with half of a surrogate pair");
      break;
    case type::INT64:
      nodes_[id].what = kind::number;
      nodes_[id].text = std::to_string(std::int64_t(e));
      nodes_[id].number = static_cast<double>(std::int64_t(e));
      break;
    case type::UINT64:
      nodes_[id].what = kind::number;
      nodes_[id].text = std::to_string(std::uint64_t(e));
      nodes_[id].number = static_cast<double>(std::uint64_t(e));
      break;
    case type::DOUBLE:
      nodes_[id].what = kind::number;
      nodes_[id].number = double(e);
      nodes_[id].text = shortest(double(e));
      if (const auto written = json::digits(e))
        nodes_[id].text = json::without_exponent(*written);
      break;
    case type::ARRAY: {
      nodes_[id].what = kind::array;
      for (const auto item : simdjson::dom::array(e))
        nodes_[id].items.push_back(read(item, id, nodes_[id].items.size(), depth + 1));
      break;
    }
    case type::OBJECT:
      nodes_[id].what = kind::object;
      for (const auto member : simdjson::dom::object(e)) {
        nodes_[id].members.emplace_back(member.key, no_schema); // first, as its path may be asked for
        nodes_[id].members.back().second = read(member.value, id, nodes_[id].members.size() - 1, depth + 1);
      }
      break;
  }
  return id;
}

schema_id schema_document::find(schema_id object, std::string_view key) const {
  meter::charge(1 + nodes_[object].members.size() / 2);
  for (const auto& [name, value] : nodes_[object].members)
    if (name == key)
      return value;
  return no_schema;
}

bool schema_document::knows(schema_id schema, std::string_view keyword) const {
  static constexpr std::array<std::string_view, 13> later{"if",
                                                          "const",
                                                          "contains",
                                                          "propertyNames",
                                                          "prefixItems",
                                                          "dependentRequired",
                                                          "dependentSchemas",
                                                          "minContains",
                                                          "maxContains",
                                                          "unevaluatedProperties",
                                                          "unevaluatedItems",
                                                          "$dynamicRef",
                                                          "$recursiveRef"};
  return !draft_4_ || !is_written(schema) || std::ranges::find(later, keyword) == later.end();
}

bool schema_document::equal(schema_id a, schema_id b) const {
  meter::charge(4);
  const auto& x = nodes_[a];
  const auto& y = nodes_[b];
  if (x.what != y.what || x.truth != y.truth || x.items.size() != y.items.size() ||
      x.members.size() != y.members.size())
    return false;
  if (x.what == schema_node::kind::number)
    return decimal_of(x.text).second == decimal_of(y.text).second &&
      decimal_of(x.text).first.whole == decimal_of(y.text).first.whole &&
      decimal_of(x.text).first.fraction == decimal_of(y.text).first.fraction;
  if (x.text != y.text)
    return false;
  for (std::size_t i = 0; i < x.items.size(); ++i)
    if (!equal(x.items[i], y.items[i]))
      return false;
  for (const auto& [key, value] : x.members) {
    const auto other = find(b, key);
    if (other == no_schema || !equal(value, other))
      return false;
  }
  return true;
}

// -- references -----------------------------------------------------------------

void schema_document::resolve() {
  if (const auto dialect = find(root(), "$schema"); dialect != no_schema) {
    for (const auto* old : {"draft-03", "draft-04", "draft-05", "draft-06", "draft-07"})
      lone_references_ |= nodes_[dialect].text.find(old) != std::string::npos;
    for (const auto* old : {"draft-03", "draft-04"})
      draft_4_ |= nodes_[dialect].text.find(old) != std::string::npos;
  }
  names_[{add_base({}), {}}] = root();
  collect(root(), 0, true, 0);
  for (const auto& [from, base] : references_)
    targets_[from] = look_up(from, base, nodes_[find(from, "$ref")].text);
}

schema_document::base_id schema_document::add_base(std::string name) {
  meter::charge(name.size() / 16);
  const auto [known, fresh] = base_ids_.try_emplace(name, static_cast<base_id>(bases_.size()));
  if (fresh)
    bases_.push_back(std::move(name));
  return known->second;
}

/// Visits every value, since references may point anywhere, and notes names and references of schemas.
void schema_document::collect(schema_id s, base_id outer, bool is_schema, std::size_t depth) {
  const auto& n = nodes_[s];
  auto base = outer;
  const auto text_of = [&](std::string_view key) -> const std::string* {
    const auto value = find(s, key);
    return value != no_schema && nodes_[value].what == schema_node::kind::string ? &nodes_[value].text : nullptr;
  };
  if (n.what == schema_node::kind::object && is_schema) {
    for (const auto* key : {"$id", "id"})
      if (const auto* id = text_of(key)) {
        const auto hash = id->find('#');
        if (const auto name = id->substr(0, hash); !name.empty())
          base = add_base(resolved(bases_[outer], name));
        names_.try_emplace({base, {}}, s);
        if (hash != id->npos && hash + 1 < id->size())
          names_.try_emplace({base, id->substr(hash + 1)}, s);
      }
    for (const auto* key : {"$anchor", "$dynamicAnchor"})
      if (const auto* anchor = text_of(key))
        names_.try_emplace({base, *anchor}, s);
    if (text_of("$ref"))
      references_.emplace_back(s, base);
  }
  for (const auto item : n.items)
    collect(item, base, is_schema, depth + 1);
  for (const auto& [key, value] : n.members) {
    const bool is_data = is_schema && (key == "enum" || key == "const" || key == "default" || key == "examples");
    // The members of `properties` are schemas whatever their names; the object itself is not one.
    const bool is_map = is_schema && nodes_[value].what == schema_node::kind::object &&
      (key == "properties" || key == "patternProperties" || key == "$defs" || key == "definitions" ||
       key == "dependentSchemas" || key == "dependencies");
    if (is_map)
      for (const auto& [name, inner] : nodes_[value].members)
        collect(inner, base, true, depth + 2);
    else
      collect(value, base, !is_data, depth + 1);
  }
}

schema_id schema_document::look_up(schema_id from, base_id base, const std::string& reference) const {
  const auto hash = reference.find('#');
  const auto fragment = hash == reference.npos ? std::string() : percent_decoded(reference.substr(hash + 1));
  std::optional<base_id> file = base;
  if (hash != 0) {
    meter::charge(bases_[base].size() / 16);
    const auto known = base_ids_.find(resolved(bases_[base], reference.substr(0, hash)));
    file = known == base_ids_.end() ? std::nullopt : std::optional(known->second);
  }
  const bool is_anchor = !fragment.empty() && fragment.front() != '/';
  const auto named = file ? names_.find({*file, is_anchor ? fragment : std::string()}) : names_.end();
  if (named != names_.end())
    return is_anchor || fragment.empty() ? named->second : follow(named->second, fragment);
  if (!is_anchor && file == base) // an identifier that no schema carries
    return fragment.empty() ? root() : follow(root(), fragment);
  refuse(from, "`$ref` leads to `" + reference + "`, which is not in the schema");
}

schema_id schema_document::follow(schema_id from, std::string_view pointer) const {
  auto at = from;
  while (!pointer.empty()) {
    pointer.remove_prefix(1);
    const auto end = std::min(pointer.find('/'), pointer.size());
    std::string key;
    for (std::size_t i = 0; i < end; ++i)
      if (pointer[i] == '~' && i + 1 < end && (pointer[i + 1] == '0' || pointer[i + 1] == '1'))
        key += pointer[++i] == '0' ? '~' : '/';
      else
        key += pointer[i];
    pointer.remove_prefix(end);
    auto next = no_schema;
    if (nodes_[at].what == schema_node::kind::object)
      next = find(at, key);
    else if (nodes_[at].what == schema_node::kind::array) {
      std::size_t index = 0;
      const auto [stop, ok] = std::from_chars(key.data(), key.data() + key.size(), index);
      if (ok == std::errc() && stop == key.data() + key.size() && index < nodes_[at].items.size())
        next = nodes_[at].items[index];
    }
    if (next == no_schema)
      refuse(from, "`$ref` leads to `" + key + "`, which is not there");
    at = next;
  }
  return at;
}

} // namespace troupe::guides
