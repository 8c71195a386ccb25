#include "runtime/chat/output/parameter_kind.hpp"

#include "runtime/chat/output/local_reference.hpp"

namespace troupe {

namespace {

constexpr int most_nested_choices = 8;

void add_type(parameter_kind& to, std::string_view type) {
  to.known = true;
  to.string |= type == "string";
  to.null |= type == "null";
  to.boolean |= type == "boolean";
  to.number |= type == "number" || type == "integer";
  to.list |= type == "array";
  to.object |= type == "object";
}

void add_value(parameter_kind& to, json::value value) {
  if (value.is_string())
    add_type(to, "string");
  else if (value.is_null())
    add_type(to, "null");
  else if (value.is_bool())
    add_type(to, "boolean");
  else
    add_type(to, value.is_array() ? "array" : value.is_object() ? "object" : "number");
}

/// False if one of the choices says nothing of types, so that anything may be meant, or if there are too many. `left`:
/// choices and references that may be followed.
bool add_schema(parameter_kind& to, json::value document, json::value given, int depth, int& left) {
  if (depth > most_nested_choices || ((depth > 0 || json::find(given, "$ref")) && --left < 0))
    return false;
  const auto schema = resolved_schema(document, given);
  if (!schema.is_object())
    return false;
  if (const auto type = json::find(schema, "type")) {
    std::string_view one;
    if (!type->get(one)) {
      add_type(to, one);
      return true;
    }
    if (json::array several; !type->get(several)) {
      for (auto each : several)
        if (!each.get(one))
          add_type(to, one);
      return to.known;
    }
    return false;
  }
  if (const auto value = json::find(schema, "const")) {
    add_value(to, *value);
    return true;
  }
  json::array values;
  if (const auto found = json::find(schema, "enum"); found && !found->get(values)) {
    for (auto value : values)
      add_value(to, value);
    return values.size() > 0;
  }
  for (const auto* key : {"anyOf", "oneOf"})
    if (const auto found = json::find(schema, key); found && !found->get(values)) {
      for (auto choice : values)
        if (!add_schema(to, document, choice, depth + 1, left))
          return false;
      return values.size() > 0;
    }
  return false;
}

} // namespace

bool parameter_kind::admits(char first) const {
  if (!known)
    return true;
  switch (first) {
    case '"': return false;
    case '{': return object;
    case '[': return list;
    case 't':
    case 'f': return boolean;
    case 'n': return null;
    default: return number && (first == '-' || (first >= '0' && first <= '9'));
  }
}

parameter_kind kind_of_schema(json::value document, json::value schema, int& left) {
  parameter_kind result;
  return add_schema(result, document, schema, 0, left) ? result : parameter_kind{};
}

} // namespace troupe
