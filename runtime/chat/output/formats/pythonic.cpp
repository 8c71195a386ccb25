// Calls whose arguments are named one by one:
// LFM2     <|tool_call_start|>[name(key="value", other=[1, True]), ...]<|tool_call_end|>, as Python writes them; or, where
//          a prompt asks for it, a list of JSON objects between the same marks
// Gemma 4  <|tool_call>call:name{key:<|"|>value<|"|>,other:[1,true]}<tool_call|>
#include "runtime/chat/output/call_object.hpp"
#include "runtime/chat/output/formats/argument_value.hpp"
#include "runtime/chat/output/formats/formats.hpp"
#include "runtime/chat/output/formats/tag_formats.hpp"
#include "runtime/chat/output/local_reference.hpp"
#include "runtime/chat/output/text_search.hpp"
#include "runtime/support/json/json_digits.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// How a family writes them.
struct argument_style {
  std::string_view begin, prefix, end; // `prefix` of a name
  char open, assign, close;
  std::string_view between; // arguments
  std::string_view quote;   // around strings; empty: Python's
  std::string_view yes, no;
  bool listed; // calls stand in a list between `begin` and `end`

  argument_ends ends() const { return {close, assign, quote}; }
};

constexpr argument_style lfm2_style{
  "<|tool_call_start|>", "", "<|tool_call_end|>", '(', '=', ')', ", ", "", "True", "False", true};
constexpr argument_style gemma4_style{"<|tool_call>", "call:", "<tool_call|>", '{',  ':', '}', ",",
                                      "<|\"|>",       "true",  "false",        false};
constexpr std::size_t most_optional = 16; // parameters that a constraint offers in all combinations

class pythonic_attempt : public call_attempt {
public:
  pythonic_attempt(delta_sink& out, const argument_style& style)
    : out_(out), style_(style), list_(out), last_({style.end}), prefix_({style.prefix}) {
    if (!style.listed)
      at_ = at::prefix;
  }

  reading take(char c) override {
    switch (at_) {
      case at::bracket:
        if (c == '[')
          at_ = at::name;
        return c == '[' || is_space(c) ? reading::more : reading::failed;
      case at::prefix: {
        const auto how = prefix_.take(c);
        if (how == expected_text::match::found)
          at_ = at::name;
        return how == expected_text::match::none ? reading::failed : reading::more;
      }
      case at::name: return name(c);
      case at::objects: return objects(c);
      case at::key: return key(c);
      case at::value: return value(c);
      case at::separator:
        if (c == ',')
          at_ = at::name;
        else if (c == ']')
          at_ = at::last;
        return c == ',' || c == ']' || is_space(c) ? reading::more : reading::failed;
      case at::last: break;
    }
    return reading_of(last_.take(c));
  }

  void abandon() override {
    if (at_ != at::value)
      return;
    value_.finish();
    emit();
    if (value_.rest().starts_with(style_.close))
      out_.arguments("}");
  }

private:
  enum class at : std::uint8_t { bracket, prefix, name, objects, key, value, separator, last };

  reading name(char c) {
    if (name_.empty() && is_space(c))
      return reading::more;
    if (style_.listed && name_.empty() && c == '{' && !called_) {
      at_ = at::objects;
      list_.take('[');
      return objects(c);
    }
    if (c != style_.open) {
      name_ += c;
      return is_space(c) || name_.size() > most_name_bytes ? reading::failed : reading::more;
    }
    if (!out_.begin_call(std::exchange(name_, {})))
      return reading::failed;
    called_ = first_ = true;
    out_.arguments("{");
    at_ = at::key;
    return reading::more;
  }

  reading objects(char c) {
    const auto how = list_.take(c);
    if (how == reading::done)
      at_ = at::last;
    return how == reading::done ? reading::settled : how;
  }

  reading key(char c) {
    if (c == style_.close && key_.empty())
      return close();
    if (c == style_.assign && !key_.empty()) {
      key_ = bare_key(key_, style_.quote);
      value_ = argument_value(style_.ends(), out_.called().kind_of(key_));
      at_ = at::value;
      return key_.empty() ? broken() : reading::more;
    }
    if (is_space(c) && key_.empty())
      return reading::more;
    key_ += c;
    return c == '\n' || std::string_view("()[]{},=:").find(c) != std::string_view::npos || key_.size() > most_name_bytes
      ? broken()
      : reading::more;
  }

  reading value(char c) {
    const bool ends = value_.take(c);
    emit();
    if (!ends)
      return value_.too_long() ? broken() : reading::more;
    auto how = reading::more;
    for (const char other : value_.rest()) {
      if (at_ == at::value)
        how = other == ',' ? (at_ = at::key, reading::more) : close();
      else if (how = take(other); how == reading::failed)
        break;
    }
    return how;
  }

  void emit() { out_.member(key_, first_, value_.release()); }

  /// What follows is no part of the call; what was read of it is JSON.
  reading broken() {
    if (at_ == at::key || !key_.empty())
      out_.arguments("}");
    out_.end_call();
    return reading::failed;
  }

  reading close() {
    out_.arguments("}");
    out_.end_call();
    at_ = style_.listed ? at::separator : at::last;
    return reading::settled;
  }

  delta_sink& out_;
  const argument_style& style_;
  call_list list_;
  expected_text last_, prefix_;
  at at_ = at::bracket;
  std::string name_, key_; // key_: until its value begins
  argument_value value_;
  bool first_ = true, called_ = false;
};

using tag_formats::any_text, tag_formats::combined, tag_formats::constant;

/// A string between marks: one of a few, or any without the mark.
std::string quoted_format(const argument_style& style, json::value schema) {
  const auto within = [&](const std::string& content) {
    return tag_formats::tag_of(style.quote, content, style.quote);
  };
  json::array values;
  const auto found = json::find(schema, "enum");
  if (!found || found->get(values))
    return within(any_text);
  std::vector<std::string> all;
  for (auto value : values)
    if (std::string_view text; !value.get(text))
      all.push_back(within(constant(text)));
  return all.empty() ? within(any_text) : combined("or", all);
}

/// A value that the schema describes: as JSON where the family writes it alike.
std::string value_format(const argument_style& style, const offered_tool& tool, json::value document,
                         json::value schema) {
  std::string_view type;
  const auto resolved = resolved_schema(document, schema);
  if (resolved.is_object())
    if (const auto found = json::find(resolved, "type"); found && found->get(type))
      type = {};
  if (type == "boolean")
    return combined("or", {constant(style.yes), constant(style.no)});
  if (!style.quote.empty()) {
    if (type == "string")
      return quoted_format(style, resolved);
    if (type != "number" && type != "integer") {
      if (tool.strict)
        throw failure(errc::bad_request, "it has values that this model's format of calls cannot enforce");
      return any_text;
    }
  }
  const auto text = has_references(schema) ? std::string("true") : json::minified(schema);
  return tag_formats::closed_json(text);
}

/// Whether there may be parameters that `properties` does not name.
bool is_open(json::value schema) {
  if (!schema.is_object())
    return true;
  const auto properties = json::find(schema, "properties");
  const auto more = json::find(schema, "additionalProperties");
  if (!properties || !properties->is_object() || (more && !more->is_null() && !(more->is_bool() && !bool(*more))))
    return true;
  return std::ranges::any_of(tag_formats::open_keywords,
                             [&](const char* key) { return json::find(schema, key).has_value(); });
}

/// The parameters: the required ones, then any of the others. Free text where there may be more than are named.
std::string parameters_format(const argument_style& style, const offered_tool& tool) {
  if (tool.parameters.empty())
    return any_text;
  const auto document = json::document::parse(tool.parameters, "the schema", errc::bad_request);
  const auto schema = resolved_schema(document.root(), document.root());
  const bool open = is_open(schema);
  if (open && tool.strict)
    throw failure(errc::bad_request, "it must be a closed list of `properties`, which this model's format can enforce");
  if (open)
    return any_text;
  std::vector<std::string> names, needed, rest;
  json::array required;
  if (const auto found = json::find(schema, "required"); found && !found->get(required))
    for (auto name : required)
      if (std::string_view text; !name.get(text))
        names.emplace_back(text);
  if (const auto properties = json::find(schema, "properties"); properties && properties->is_object())
    for (auto [key, value] : json::object(*properties)) {
      const std::string_view name = key;
      const auto one = combined(
        "sequence", {constant(std::string(name) + style.assign), value_format(style, tool, document.root(), value)});
      const bool must = std::erase(names, name) > 0;
      (must ? needed : rest).push_back(one);
    }
  if (!names.empty() && tool.strict)
    throw failure(errc::bad_request, "it requires `" + names.front() + "`, which is none of its `properties`");
  if (!names.empty())
    return any_text;
  rest.resize(std::min(rest.size(), most_optional));
  std::vector<std::string> all;
  for (const auto& one : needed) {
    if (!all.empty())
      all.push_back(constant(style.between));
    all.push_back(one);
  }
  const auto maybe = [&](std::size_t i) {
    return combined("or", {combined("sequence", {constant(style.between), rest[i]}), constant("")});
  };
  if (!needed.empty()) {
    for (std::size_t i = 0; i < rest.size(); ++i)
      all.push_back(maybe(i));
    return combined("sequence", all);
  }
  std::vector<std::string> beginnings{constant("")}; // by the first that is there
  for (std::size_t first = 0; first < rest.size(); ++first) {
    std::vector<std::string> from{rest[first]};
    for (auto i = first + 1; i < rest.size(); ++i)
      from.push_back(maybe(i));
    beginnings.push_back(combined("sequence", from));
  }
  return combined("or", beginnings);
}

class named_arguments : public call_format {
public:
  constexpr named_arguments(std::string_view name, const argument_style& style) : call_format(name), style_(style) {}

  bool is_used_by(std::string_view chat_template) const override {
    return chat_template.find(style_.begin) != chat_template.npos ||
      (style_.listed && chat_template.find("<|tool_list_start|>") != chat_template.npos);
  }
  std::vector<std::string_view> markers() const override {
    std::vector<std::string_view> result{style_.begin, style_.end};
    if (!style_.quote.empty()) // Gemma's channels of reasoning begin with a token of their own, too
      result.insert(result.end(), {style_.quote, "<|channel>"});
    return result;
  }
  std::unique_ptr<call_reader> reader(delta_sink& out) const override {
    return std::make_unique<call_search>(out, std::vector{style_.begin}, [this, &out](std::string_view) {
      return std::make_unique<pythonic_attempt>(out, style_);
    });
  }
  call_layout layout() const override {
    if (!style_.listed)
      return {.trigger = std::string(style_.begin)};
    return {std::string(style_.begin) + '[', ']' + std::string(style_.end), ", ", std::string(style_.begin)};
  }
  call_tag tag(const offered_tool& tool) const override {
    const auto head = std::string(style_.prefix) + tool.name + style_.open;
    return {style_.listed ? head : std::string(style_.begin) + head, parameters_format(style_, tool),
            style_.close + (style_.listed ? std::string() : std::string(style_.end))};
  }

private:
  const argument_style& style_;
};

constinit const named_arguments lfm2_format("lfm2", lfm2_style);
constinit const named_arguments gemma4_format("gemma4", gemma4_style);

} // namespace

const call_format& lfm2_calls() { return lfm2_format; }
const call_format& gemma4_calls() { return gemma4_format; }

} // namespace troupe
