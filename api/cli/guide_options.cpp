#include "api/cli/guide_options.hpp"

#include "runtime/guide/compile.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/files/file_reading.hpp"
#include "runtime/support/json/json.hpp"

#include <CLI/CLI.hpp>

#include <utility>

namespace troupe::cli {

std::shared_ptr<const guides::guide_source> guide_options::source() const {
  using kind = guides::guide_source::kind;
  auto source = std::make_shared<guides::guide_source>();
  source->any_order = any_order;
  source->compact = compact;
  const auto take = [&](bool is_given, const char* flag, kind what, std::string text) {
    if (!is_given)
      return;
    if (!source->field.empty())
      throw failure(errc::bad_request, "`" + source->field + "` and `" + flag + "` cannot both be given", flag);
    source->field = flag;
    source->what = what;
    source->text = std::move(text);
  };
  std::string from; // the file that holds the guide
  const auto file = [&](const std::string& name, bool is_json) {
    if (name.empty())
      return std::string();
    from = name + ": ";
    auto text = read_file(name, files::text);
    if (is_json)
      json::document::parse(text, name, errc::bad_request); // for an error with its line
    return text;
  };
  take(json_object, "--json-object", kind::json_object, {});
  take(!json_schema.empty(), "--json-schema", kind::json_schema, file(json_schema, true));
  take(!regex.empty(), "--regex", kind::regex, regex);
  take(!grammar.empty(), "--grammar", kind::grammar, file(grammar, false));
  take(!structural_tag.empty(), "--structural-tag", kind::structural_tag, file(structural_tag, true));
  take(!choices.empty(), "--choice", kind::choice, {});
  source->choices = choices;
  const bool is_json = !source->field.empty() &&
    (source->what == kind::json_object || source->what == kind::json_schema);
  if ((any_order || compact) && !is_json)
    throw failure(errc::bad_request,
                  std::string(any_order ? "`--any-order`" : "`--compact`") + " needs --json-schema or --json-object");
  if (source->field.empty())
    return nullptr;
  try {
    guides::compile_grammar(*source, {});
  } catch (const failure& e) {
    throw failure(e.what_failed().code, from + e.what(), e.what_failed().param);
  }
  return source;
}

void add_guide_options(CLI::App& command, guide_options& options, const std::string& group) {
  const auto add = [&](CLI::Option* option) {
    if (!group.empty())
      option->group(group);
    return option;
  };
  add(command.add_option("--json-schema", options.json_schema, "The answer follows the JSON Schema in this file"))
    ->type_name("FILE");
  add(command.add_flag("--json-object", options.json_object, "The answer is a JSON object"));
  add(command.add_option("--regex", options.regex, "The answer matches this regular expression"))->type_name("REGEX");
  add(command.add_option("--grammar", options.grammar, "The answer follows the grammar in this file, GBNF or Lark"))
    ->type_name("FILE");
  add(command.add_option("--choice", options.choices, "The answer is one of these texts; give the flag once for each"))
    ->take_all()
    ->allow_extra_args(false)
    ->type_name("TEXT");
  add(command.add_option("--structural-tag", options.structural_tag,
                         "The answer follows the structural tag in this file, as in vLLM and XGrammar"))
    ->type_name("FILE");
  add_json_style_options(command, options.any_order, options.compact, group);
}

void add_json_style_options(CLI::App& command, bool& any_order, bool& compact, const std::string& group) {
  auto* order = command.add_flag("--any-order", any_order,
                                 "JSON properties may come in any order, not only the schema's");
  auto* style = command.add_flag("--compact", compact, "JSON without white space");
  if (group.empty())
    return;
  order->group(group);
  style->group(group);
}

} // namespace troupe::cli
