#include "runtime/chat/output/local_reference.hpp"

#include <algorithm>

namespace troupe {

json::value resolved_schema(json::value document, json::value schema) {
  constexpr int most_steps = 16; // they may go round in circles
  for (int step = 0; step < most_steps; ++step) {
    std::string_view reference;
    const auto found = json::find(schema, "$ref");
    if (!found || found->get(reference) || !reference.starts_with('#'))
      return schema;
    json::value target = document;
    if (reference.size() > 1 && document.at_pointer(reference.substr(1)).get(target))
      return schema;
    schema = target;
  }
  return schema;
}

bool has_references(json::value schema) {
  if (json::array list; !schema.get(list))
    return std::ranges::any_of(list, has_references);
  if (!schema.is_object())
    return false;
  for (auto [key, value] : json::object(schema))
    if (key == "$ref" || key == "$dynamicRef" || key == "$recursiveRef" || has_references(value))
      return true;
  return false;
}

} // namespace troupe
