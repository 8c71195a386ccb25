// Formats of structural tags, as JSON: what the arguments of calls, and answers with calls, are held to. Pure.
#pragma once

#include "runtime/support/json/json_text.hpp"

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::tag_formats {

inline constexpr auto any_text = R"({"type":"any_text"})";

/// Keywords of schemas whose parameters may be others than those of `properties`.
inline constexpr std::array open_keywords{"$ref",
                                          "allOf",
                                          "anyOf",
                                          "oneOf",
                                          "if",
                                          "patternProperties",
                                          "dependentSchemas",
                                          "dependencies",
                                          "not",
                                          "dependentRequired",
                                          "minProperties",
                                          "maxProperties",
                                          "propertyNames"};

inline void append(std::string& elements, const std::string& one) { elements += (elements.empty() ? "" : ",") + one; }

inline std::string listed(const std::vector<std::string>& items) {
  std::string result;
  for (const auto& item : items)
    append(result, item);
  return '[' + result + ']';
}

inline std::string object_of(std::string_view type, const std::string& members) {
  return "{\"type\":\"" + std::string(type) + "\"," + members + '}';
}

inline std::string constant(std::string_view text) { return object_of("const_string", "\"value\":" + json_text(text)); }

/// "or" and "sequence".
inline std::string combined(std::string_view type, const std::vector<std::string>& elements) {
  return object_of(type, "\"elements\":" + listed(elements));
}

inline std::string tag_of(std::string_view begin, const std::string& content, std::string_view end) {
  return object_of("tag", "\"begin\":" + json_text(begin) + ",\"content\":" + content + ",\"end\":" + json_text(end));
}

inline std::string closed_json(const std::string& schema) {
  return object_of("json_schema", "\"closed\":true,\"json_schema\":" + schema);
}

} // namespace troupe::tag_formats
