#include "runtime/guide/schema/invented_schemas.hpp"

namespace troupe::guides {

using json_kind = schema_node::kind;

schema_id invented_schemas::object(std::vector<std::pair<std::string, schema_id>> members) {
  return doc_.add({.what = json_kind::object, .members = std::move(members)});
}
schema_id invented_schemas::list_of(std::vector<schema_id> items) {
  return doc_.add({.what = json_kind::array, .items = std::move(items)});
}
schema_id invented_schemas::number(std::uint32_t n) {
  return doc_.add({.what = json_kind::number, .text = std::to_string(n), .number = static_cast<double>(n)});
}
schema_id invented_schemas::text(const std::string& s) { return doc_.add({.what = json_kind::string, .text = s}); }

schema_id invented_schemas::of_constant(schema_id value) {
  const auto [known, fresh] = constants_.try_emplace(value, no_schema);
  if (!fresh)
    return known->second;
  const auto n = doc_.at(value);
  const auto constant = [&](schema_id v) { return object({{"const", v}}); };
  schema_id result;
  if (n.what == json_kind::object) {
    std::vector<std::pair<std::string, schema_id>> names;
    std::vector<schema_id> required;
    for (const auto& [name, v] : n.members) {
      names.emplace_back(name, constant(v));
      required.push_back(text(name));
    }
    result = object({{"type", text("object")},
                     {"properties", object(std::move(names))},
                     {"required", list_of(std::move(required))},
                     {"maxProperties", number(static_cast<std::uint32_t>(n.members.size()))}});
  } else {
    std::vector<schema_id> items;
    for (const auto v : n.items)
      items.push_back(constant(v));
    const auto size = number(static_cast<std::uint32_t>(items.size()));
    result = object(
      {{"type", text("array")}, {"prefixItems", list_of(std::move(items))}, {"minItems", size}, {"maxItems", size}});
  }
  return constants_[value] = result;
}

} // namespace troupe::guides
