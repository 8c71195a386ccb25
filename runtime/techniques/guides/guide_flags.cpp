#include "runtime/techniques/guides/guide_sources.hpp"

#include "runtime/guide/compile.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/files/file_reading.hpp"
#include "runtime/support/json/json.hpp"

#include <algorithm>
#include <array>
#include <string>

namespace troupe::guides {

namespace {

using kind = guide_source::kind;

struct guide_flag {
  const char* name;
  kind what;
  bool names_file = false;
};

constexpr auto all_flags = std::to_array<guide_flag>({
  {"json_object", kind::json_object},
  {"json_schema", kind::json_schema, true},
  {"regex", kind::regex},
  {"grammar", kind::grammar, true},
  {"structural_tag", kind::structural_tag, true},
  {"choice", kind::choice},
});

std::string written(std::string name) {
  std::ranges::replace(name, '_', '-');
  return "--" + name;
}

} // namespace

source_ptr source_of_flags(const flag_values& flags) {
  auto source = std::make_shared<guide_source>();
  source->any_order = flags.contains("any_order");
  source->compact = flags.contains("compact");
  std::string given, from; // the flag; the file that holds the guide
  for (const auto& [name, what, names_file] : all_flags) {
    const auto texts = texts_of(flags, name);
    if (texts.empty() || (what != kind::json_object && what != kind::choice && texts.back().empty()))
      continue;
    const auto flag = written(name);
    if (!given.empty())
      throw failure(errc::bad_request, "`" + given + "` and `" + flag + "` cannot both be given", flag);
    source->field = given = flag;
    source->what = what;
    if (what == kind::choice)
      source->choices.assign(texts.begin(), texts.end());
    else if (!names_file)
      source->text = texts.back();
    else {
      from = texts.back() + ": ";
      source->text = read_file(texts.back(), files::text);
      if (what != kind::grammar)
        json::document::parse(source->text, texts.back(), errc::bad_request); // for an error with its line
    }
  }
  if ((source->any_order || source->compact) && (given.empty() || !is_json(*source)))
    throw failure(errc::bad_request,
                  std::string(source->any_order ? "`--any-order`" : "`--compact`") +
                    " needs --json-schema or --json-object");
  if (given.empty())
    return nullptr;
  try {
    compile_grammar(*source, {});
  } catch (const failure& e) {
    throw failure(e.what_failed().code, from + e.what(), e.what_failed().param);
  }
  return source;
}

} // namespace troupe::guides
