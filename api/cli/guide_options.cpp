#include "api/cli/guide_options.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/file_reading.hpp"

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
  const auto file = [](const std::string& name) { return name.empty() ? std::string() : read_file(name, files::text); };
  take(json_object, "--json-object", kind::json_object, {});
  take(!json_schema.empty(), "--json-schema", kind::json_schema, file(json_schema));
  take(!regex.empty(), "--regex", kind::regex, regex);
  take(!grammar.empty(), "--grammar", kind::grammar, file(grammar));
  take(!structural_tag.empty(), "--structural-tag", kind::structural_tag, file(structural_tag));
  take(!choices.empty(), "--choice", kind::choice, {});
  source->choices = choices;
  const bool is_json = !source->field.empty() &&
    (source->what == kind::json_object || source->what == kind::json_schema);
  if ((any_order || compact) && !is_json)
    throw failure(errc::bad_request,
                  std::string(any_order ? "`--any-order`" : "`--compact`") + " needs --json-schema or --json-object");
  if (source->field.empty())
    return nullptr;
  return source;
}

void add_guide_options(CLI::App& command, guide_options& options, const std::string& group) {
  const auto add = [&](CLI::Option* option) {
    if (!group.empty())
      option->group(group);
    return option;
  };
  add(command.add_option("--json-schema", options.json_schema, "A file with a JSON Schema"))->type_name("FILE");
  add(command.add_flag("--json-object", options.json_object, "Any JSON object"));
  add(command.add_option("--regex", options.regex, "A regular expression"))->type_name("REGEX");
  add(command.add_option("--grammar", options.grammar, "A file with a grammar: GBNF or Lark"))->type_name("FILE");
  add(command.add_option("--choice", options.choices, "One of these texts; may be repeated"))
    ->take_all()
    ->allow_extra_args(false)
    ->type_name("TEXT");
  add(command.add_option("--structural-tag", options.structural_tag, "A file with a structural tag"))
    ->type_name("FILE");
  add_json_style_options(command, options.any_order, options.compact, group);
}

void add_json_style_options(CLI::App& command, bool& any_order, bool& compact, const std::string& group) {
  auto* order = command.add_flag("--any-order", any_order, "Properties in any order, rather than the schema's");
  auto* style = command.add_flag("--compact", compact, "JSON without white space");
  if (group.empty())
    return;
  order->group(group);
  style->group(group);
}

} // namespace troupe::cli
