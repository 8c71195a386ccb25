#include "runtime/chat/output/formats/tagged_parameters.hpp"

#include "runtime/chat/output/formats/plain_value.hpp"
#include "runtime/chat/output/formats/tag_formats.hpp"
#include "runtime/chat/output/local_reference.hpp"
#include "runtime/support/json/json_digits.hpp"
#include "runtime/support/json/json_reader.hpp"
#include "runtime/support/json/json_text.hpp"

#include <vector>

namespace troupe {

namespace {

using tag_formats::any_text, tag_formats::append, tag_formats::closed_json, tag_formats::combined,
  tag_formats::constant, tag_formats::object_of, tag_formats::tag_of;

/// A document in which a part of another keeps its references. The other one gets an identifier of its own, from which
/// its references start. `place`: the pointer to the schema of the parameters.
std::string within_document(json::value document, std::string_view place, std::string_view property) {
  constexpr std::string_view id = "urn:troupe:parameters";
  std::string inner = "{\"$id\":\"" + std::string(id) + '"', dialect;
  for (auto [key, value] : json::object(document))
    if (!((key == "$id" || key == "id") && value.is_string()) && !value.is_null()) {
      inner += ',' + json_text(key) + ':' + json::minified(value);
      if (key == "$schema")
        dialect = ",\"$schema\":" + json::minified(value);
    }
  std::string pointer;
  for (const char c : property)
    pointer += c == '~' ? "~0" : c == '/' ? "~1" : c == '%' ? "%25" : std::string(1, c);
  return "{\"$ref\":" + json_text(std::string(id) + '#' + std::string(place) + "/properties/" + pointer) + dialect +
    ",\"$defs\":{\"parameters\":" + inner + "}}}";
}

class parameter_formats {
public:
  parameter_formats(const offered_tool& tool, const value_tags& tags) : tool_(tool), tags_(tags) {}

  std::string of_any() const { return combined("sequence", {others()}); }

  std::string of(json::value document) const {
    std::string_view place; // of the schema in the document
    if (const auto reference = json::find(document, "$ref"); reference && !reference->get(place))
      place.remove_prefix(place.starts_with('#') ? 1 : 0);
    const json::reader schema(resolved_schema(document, document), {}, {}, json::body_wording);
    bool open = false;
    for (const auto* key : tag_formats::open_keywords)
      if (schema.has(key)) {
        refuse_if_strict(schema, key);
        open = true; // further properties may be declared there
      }
    std::vector<std::string> required;
    if (const auto names = schema.child("required"))
      for (const auto& one : names->items())
        required.emplace_back(one.string());
    const auto properties = schema.object("properties");
    std::string elements;
    if (properties)
      for (const auto [key, value] : properties->object()) {
        const std::string name(key);
        auto one = parameter(name, content(document, place, name, value));
        if (std::erase(required, name) == 0)
          one = combined("or", {one, constant("")});
        append(elements, one);
      }
    const auto more = schema.find("additionalProperties");
    const bool closed = more && more->is_bool() && !bool(*more);
    if (!required.empty() && closed)
      schema.refuse("requires `" + required.front() + "`, which is none of its `properties`");
    for (const auto& name : required)
      append(elements, parameter(name, between(any_text)));
    if (!closed && (open || more || !properties))
      append(elements, others());
    return combined("sequence", {elements.empty() ? constant("") : elements});
  }

private:
  void refuse_if_strict(const json::reader& schema, std::string_view key) const {
    if (tool_.strict)
      schema.refuse("has `" + std::string(key) + "`, which this model's format of calls cannot enforce");
  }

  /// What stands between the tags of a value.
  std::string between(const std::string& format) const {
    return tag_of(tags_.padding, format, std::string(tags_.padding) + std::string(tags_.value_end));
  }

  std::string content(json::value document, std::string_view place, const std::string& name, json::value given) const {
    const json::reader schema(resolved_schema(document, given), {}, "properties." + name, json::body_wording);
    if (!schema.is_object())
      return between(any_text);
    const auto kind = tool_.kind_of(name);
    if (tool_.strict && kind.known && kind.string && (kind.boolean || kind.number || kind.list || kind.object))
      return union_format(document, place, name, given, schema, kind);
    if (kind.known && kind.string)
      return between(text_format(document, schema, kind));
    bool says_something = false;
    for (const auto* key : {"type", "enum", "const", "$ref", "allOf", "anyOf", "oneOf", "not", "properties", "items"})
      says_something = says_something || schema.has(key);
    if (!says_something)
      return between(any_text);
    return between(closed_json(schema_text(document, place, name, given)));
  }

  static std::string schema_text(json::value document, std::string_view place, const std::string& name,
                                 json::value given) {
    return has_references(given) ? within_document(document, place, name) : json::minified(given);
  }

  /// The format of values that may be strings or something else: JSON if it is no string, or a text that nobody takes
  /// for such JSON (plain_value_json).
  std::string union_format(json::value document, std::string_view place, const std::string& name, json::value given,
                           const json::reader& schema, const parameter_kind& kind) const {
    std::string texts;
    bool any = false;
    add_texts(document, schema, texts, any, &kind);
    const auto read = read_as_json(kind);
    if (any)
      texts = R"({"type":"any_text","unless":)" + json_text(read) + '}';
    std::string types;
    for (const auto& [type, admitted] :
         {std::pair("null", kind.null), std::pair("boolean", kind.boolean), std::pair("number", kind.number),
          std::pair("array", kind.list), std::pair("object", kind.object)})
      if (admitted)
        append(types, json_text(type));
    const auto json = closed_json("{\"allOf\":[" + schema_text(document, place, name, given) + ",{\"type\":[" + types +
                                  "]}]}");
    std::string both = between(json);
    if (any)
      append(both, between(texts));
    else if (!texts.empty())
      append(both, between(combined("or", {texts})));
    return combined("or", {both});
  }

  /// A pattern of all that is read as one of the types that the schema admits beside strings, and of little else.
  static std::string read_as_json(const parameter_kind& kind) {
    std::string inner;
    const auto add = [&](bool admitted, const char* pattern) {
      if (admitted)
        inner += (inner.empty() ? "" : "|") + std::string(pattern);
    };
    add(kind.null, "null|None");
    add(kind.boolean, "true|false|True|False");
    add(kind.number, "[-+]*([0-9][0-9_]*\\.?[0-9_]*|\\.[0-9][0-9_]*)([eE][-+]?[0-9_]+)?");
    add(kind.list, "\\[[\\s\\S]*\\]|\\([\\s\\S]*\\)");
    add(kind.object, "\\{[\\s\\S]*\\}");
    return "[ \\t\\r\\n\\f\\v]*(" + inner + ")[ \\t\\r\\n\\f\\v]*";
  }

  /// The format of values that may be strings, which are written without quotes: one of a few, or any text.
  std::string text_format(json::value document, const json::reader& schema, const parameter_kind& kind) const {
    std::string values;
    bool any = kind.boolean || kind.number || kind.list || kind.object; // of a tool that is not strict
    if (!any)
      add_texts(document, schema, values, any);
    return any ? std::string(any_text) : combined("or", {values});
  }

  /// The texts that a schema of strings and null admits; `any`: they are not few. With `beside`, the types that it
  /// admits, those of strings alone that are read as such.
  void add_texts(json::value document, const json::reader& schema, std::string& values, bool& any,
                 const parameter_kind* beside = nullptr) const {
    const auto add = [&](const json::reader& value) {
      const bool is_string = value.get().is_string();
      const auto text = is_string ? std::string(value.string()) : json::minified(value.get());
      if (!beside || (is_string && plain_value_json(text, *beside).starts_with('"')))
        append(values, constant(text));
    };
    if (const auto one = schema.child("const"))
      return add(*one);
    if (const auto all = schema.child("enum")) {
      for (const auto& value : all->items())
        add(value);
      return;
    }
    if (!schema.has("type"))
      for (const auto* key : {"anyOf", "oneOf"})
        if (const auto choices = schema.child(key)) {
          for (const auto& choice : choices->items())
            add_texts(document, {resolved_schema(document, choice.get()), {}, {}, json::body_wording}, values, any,
                      beside);
          return;
        }
    if (beside && !admits_strings(schema))
      return;
    if (const auto type = schema.child("type"); type && type->get().is_string() && type->string() == "null")
      return append(values, constant("null"));
    any = true;
    for (const auto* key : {"pattern", "format", "minLength", "maxLength", "allOf", "anyOf", "oneOf", "not"})
      if (schema.has(key))
        refuse_if_strict(schema, key);
  }

  static bool admits_strings(const json::reader& schema) {
    int left = 1;
    return kind_of_schema(schema.get(), schema.get(), left).admits_string();
  }

  std::string parameter(const std::string& name, const std::string& content) const {
    return combined("sequence", {constant(head(name)), content, constant("\n")});
  }

  std::string head(std::string_view name) const {
    return std::string(tags_.key_begin) + std::string(name) + behind_key();
  }

  std::string behind_key() const {
    return std::string(tags_.key_end) +
      (tags_.value_begin.empty() ? std::string() : '\n' + std::string(tags_.value_begin));
  }

  /// Any number of parameters with any names and texts.
  std::string others() const {
    const auto one = combined(
      "sequence", {R"({"type":"regex","pattern":"[^<>\\s]{1,128}"})", constant(behind_key()), between(any_text)});
    return object_of("tags_with_separator", "\"tags\":[" + tag_of(tags_.key_begin, one, "\n") + "],\"separator\":\"\"");
  }

  const offered_tool& tool_;
  const value_tags& tags_;
};

} // namespace

std::string tagged_parameters(const offered_tool& tool, const value_tags& tags) {
  const parameter_formats formats(tool, tags);
  if (tool.parameters.empty())
    return formats.of_any();
  const auto document = json::document::parse(tool.parameters, "the schema", errc::bad_request);
  return formats.of(document.root());
}

} // namespace troupe
