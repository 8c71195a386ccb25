#include "runtime/techniques/guides/guide_sources.hpp"

#include "runtime/support/json/field_reader.hpp"
#include "runtime/support/json/json_digits.hpp"
#include "runtime/support/text/simdjson.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace troupe::guides {

namespace {

using kind = guide_source::kind;

/// Collects what the fields say: one guide, which several may spell, as guidance's client for vLLM does.
class guide_reading {
public:
  explicit guide_reading(const field_reader& body) : body_(body) {}

  void read_response_format();
  void read_structured_outputs();
  void read_older_fields();
  source_ptr finish();

private:
  void take(const field_reader& at, std::string_view key, kind what, std::string text = {});
  void add(const field_reader& at, std::string_view key, guide_source source);
  void take_json(const field_reader& at, std::string_view key, kind what);
  void take_text(const field_reader& at, std::string_view key, kind what);
  void take_choices(const field_reader& at, std::string_view key);
  void read_options(const field_reader& at);

  const field_reader& body_;
  std::optional<guide_source> source_;
  std::string option_; // the field that asks for an order or for no white space
  bool any_order_ = false, compact_ = false;
};

void guide_reading::take(const field_reader& at, std::string_view key, kind what, std::string text) {
  add(at, key, {.what = what, .text = std::move(text)});
}

void guide_reading::add(const field_reader& at, std::string_view key, guide_source source) {
  if (!source_) {
    source_ = std::move(source);
    source_->field = at.path(key);
  } else if (source.what != source_->what || source.text != source_->text || source.choices != source_->choices)
    at.refuse(key, "and `" + source_->field + "` cannot both be given, as they differ");
}

/// An object, or its text.
void guide_reading::take_json(const field_reader& at, std::string_view key, kind what) {
  const auto found = at.find(key);
  if (!found)
    return;
  std::string_view text;
  if (!found->get(text))
    return take(at, key, what, std::string(text));
  if (!found->is_object() && !(what == kind::json_schema && found->is_bool()))
    at.refuse(key, "an object", *found);
  take(at, key, what, json::minified(*found));
}

void guide_reading::take_text(const field_reader& at, std::string_view key, kind what) {
  if (const auto text = at.text(key))
    take(at, key, what, std::string(*text));
}

void guide_reading::take_choices(const field_reader& at, std::string_view key) {
  const auto list = at.list(key, most_guide_choices);
  if (!list)
    return;
  std::vector<std::string> choices;
  for (auto item : *list) {
    std::string_view text;
    if (item.get(text))
      at.refuse(key, "a list of strings", item);
    choices.emplace_back(text);
  }
  if (choices.empty())
    at.refuse(key, "must not be empty");
  add(at, key, {.what = kind::choice, .choices = std::move(choices)});
}

/// The order of members and white space, beside whatever makes the answer JSON.
void guide_reading::read_options(const field_reader& at) {
  const auto read = [&](std::string_view key, bool& option) {
    if (at.boolean(key).value_or(false)) {
      option = true;
      option_ = at.path(key);
    }
  };
  read("disable_any_whitespace", compact_);
  read("compact", compact_);
  read("any_order", any_order_);
}

void guide_reading::read_response_format() {
  const auto format = body_.object("response_format");
  if (!format)
    return;
  const auto type = format->text("type");
  if (!type)
    format->refuse("type", "is required");
  if (*type == "text")
    return;
  read_options(*format);
  if (*type == "json_object") // with llama.cpp's `schema`, one that follows it
    return format->has("schema") ? take_json(*format, "schema", kind::json_schema)
                                 : take(body_, "response_format", kind::json_object);
  if (*type == "structural_tag") { // XGrammar's `format`, or `structures` and `triggers`
    take(body_, "response_format", kind::structural_tag, json::minified(format->body()));
    return;
  }
  if (*type != "json_schema")
    format->refuse("type",
                   "must be \"text\", \"json_object\", \"json_schema\" or \"structural_tag\", not \"" +
                     std::string(*type) + '"');
  auto named = format->object("json_schema");
  if (!named && format->has("schema")) // llama.cpp's form
    named = format;
  if (!named)
    format->refuse("json_schema", "is required");
  static_cast<void>(named->text("name"));
  static_cast<void>(named->text("description"));
  const bool strict = named->boolean("strict").value_or(false); // a schema is always enforced; this says how it is read
  if (!named->has("schema"))
    named->refuse("schema", "is required");
  take_json(*named, "schema", kind::json_schema);
  source_->closed = strict;
}

void guide_reading::read_structured_outputs() {
  const auto given = body_.object("structured_outputs");
  if (!given)
    return;
  for (const auto* key : {"whitespace_pattern", "disable_additional_properties"})
    if (const auto found = given->find(key); found && !(found->is_bool() && !bool(*found)))
      refuse_field(given->path(key), "is not supported", errc::unsupported);
  take_json(*given, "json", kind::json_schema);
  take_text(*given, "regex", kind::regex);
  take_choices(*given, "choice");
  take_text(*given, "grammar", kind::grammar);
  take_json(*given, "structural_tag", kind::structural_tag);
  if (given->boolean("json_object").value_or(false))
    take(*given, "json_object", kind::json_object);
  read_options(*given);
}

void guide_reading::read_older_fields() {
  take_json(body_, "guided_json", kind::json_schema);
  take_text(body_, "guided_regex", kind::regex);
  take_choices(body_, "guided_choice");
  take_text(body_, "guided_grammar", kind::grammar);
  if (body_.text("grammar").value_or("") != "") // llama.cpp's
    take_text(body_, "grammar", kind::grammar);
  take_json(body_, "json_schema", kind::json_schema);
}

source_ptr guide_reading::finish() {
  if (!option_.empty() && !(source_ && is_json(*source_)))
    refuse_field(option_, "needs a guide that makes the answer JSON");
  if (!source_)
    return nullptr;
  source_->any_order = any_order_;
  source_->compact = compact_;
  return std::make_shared<const guide_source>(std::move(*source_));
}

} // namespace

source_ptr read_guide(const field_reader& body) {
  for (const auto* name : {"guided_whitespace_pattern", "structural_tag"})
    if (body.has(name))
      refuse_field(name, "is not supported", errc::unsupported);
  guide_reading reading(body);
  reading.read_response_format();
  reading.read_structured_outputs();
  reading.read_older_fields();
  return reading.finish();
}

} // namespace troupe::guides
