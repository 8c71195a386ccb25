#include "api/cli/command.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/technique_options.hpp"
#include "api/cli/terminal/standard_streams.hpp"
#include "runtime/guide/guide_bench.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/support/json/json_reader.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/techniques/guides/guide_sources.hpp"

#include <CLI/CLI.hpp>

#include <iostream>

namespace troupe::cli {

namespace {

struct check_options {
  std::string model;
  flag_values guide;
};

int check(const check_options& options) {
  require_model(options.model);
  const auto tokens = open_tokenizer(options.model);
  const auto vocabulary = guides::guide_vocabulary::of(*tokens);
  std::shared_ptr<const guides::guide> guide;
  bool is_json = false;
  try {
    const auto source = guides::source_of_flags(options.guide);
    if (!source)
      throw failure(errc::bad_request,
                    "name one guide: --json-schema, --json-object, --regex, --grammar, --choice or --structural-tag");
    is_json = guides::is_json(*source);
    guide = guides::compile_guide(*source, vocabulary);
  } catch (const failure& f) {
    std::cerr << "troupe: " << f.what() << std::endl;
    return usage_error;
  }
  const auto input = read_stdin();
  for (std::size_t begin = 0, line = 1; begin < input.size(); ++line) {
    const auto end = std::min(input.find('\n', begin), input.size());
    auto text = input.substr(begin, end - begin);
    begin = end + 1;
    if (text.ends_with('\r'))
      text.pop_back();
    if (text.empty())
      continue;
    if (!is_json) {
      const auto parsed = json::document::parse(text, "line " + std::to_string(line), errc::bad_request);
      text = json::reader(parsed).string();
    }
    const auto at = guides::rejected_at(guides::guide_state(guide), *vocabulary, tokens->encode(text, false), nullptr);
    std::cout << (at ? "rejected: byte " + std::to_string(*at) : "accepted") << "\n";
  }
  return 0;
}

struct schema_bench_options : guides::guide_bench_options {
  std::string model;
  bool json = false, verbose = false;
};

std::string times_json(const guides::time_summary& t) {
  return "{\"average\":" + json_number(t.average) + ",\"p50\":" + json_number(t.p50) +
    ",\"p90\":" + json_number(t.p90) + ",\"p99\":" + json_number(t.p99) + ",\"max\":" + json_number(t.most) + "}";
}

std::string times_text(const guides::time_summary& t) {
  char text[160];
  std::snprintf(text, sizeof text, "average %.1f, p50 %.1f, p90 %.1f, p99 %.1f, max %.1f", t.average, t.p50, t.p90,
                t.p99, t.most);
  return text;
}

int bench(const schema_bench_options& options) {
  require_model(options.model);
  const auto tokens = open_tokenizer(options.model);
  const auto vocabulary = guides::guide_vocabulary::of(*tokens);
  const auto result = guides::bench_guides(options, *tokens, vocabulary,
                                           [&](std::string_view name, std::string_view what) {
                                             if (options.verbose)
                                               std::cerr << name << ": " << what << "\n";
                                           });
  if (options.json) {
    std::cout << "{\"schemas\":" << result.schemas << ",\"passed\":" << result.passed
              << ",\"refused\":" << result.refused << ",\"valid_accepted\":" << result.valid_accepted
              << ",\"valid_rejected\":" << result.valid_rejected << ",\"invalid_rejected\":" << result.invalid_rejected
              << ",\"invalid_accepted\":" << result.invalid_accepted << ",\"compile_us\":" << times_json(result.compile)
              << ",\"mask_us\":" << times_json(result.mask) << "}\n";
    return 0;
  }
  std::cout << "schemas: " << result.schemas << ", " << result.passed << " pass, " << result.refused << " refused\n"
            << "valid documents: " << result.valid_accepted << " accepted, " << result.valid_rejected << " rejected\n"
            << "invalid documents: " << result.invalid_rejected << " rejected, " << result.invalid_accepted
            << " accepted\n"
            << "compile, µs: " << times_text(result.compile) << "\n"
            << "mask, µs: " << times_text(result.mask) << "\n";
  return 0;
}

} // namespace

command add_guide_check(CLI::App& guide) {
  const auto options = std::make_shared<check_options>();
  auto* app = guide.add_subcommand("check", "Show which documents on stdin a guide accepts");
  add_technique_options(*app, options->guide, technique_option::answer, app->option_defaults()->get_group().c_str());
  add_model_option(*app, options->model);
  add_common_options(*app);
  app->footer("Reads one document per line: JSON, or, for guides of other texts, a JSON string with the text. Feeds "
              "each token by "
              "token, as the model's tokenizer splits it, and prints `accepted` or `rejected: byte N`.\n"
              "Examples:\n"
              "  echo '{\"age\": 5}' | troupe guide check --json-schema person.json\n"
              "  echo '\"2026-11-25\"' | troupe guide check --regex '[0-9]{4}-[0-9]{2}-[0-9]{2}'\n"
              "Exit status: 0; 1 after a failure; 2 if the guide cannot be compiled.");
  return {app, [options] { return check(*options); }};
}

command add_guide_bench(CLI::App& guide) {
  const auto options = std::make_shared<schema_bench_options>();
  auto* app = guide.add_subcommand("bench", "Measure guides over JSON Schemas with documents");
  app->add_option("--schemas", options->schemas, "JSON Lines: {name, schema, tests: [{valid, data}]}")->required();
  app->add_flag("--any-order", options->any_order, "JSON properties may come in any order, not only the schema's");
  app->add_flag("--compact", options->compact, "JSON without white space");
  app->add_flag("--verbose", options->verbose, "Print why a schema does not pass");
  app->add_flag("--json", options->json, "Print one JSON object")->group(output_group);
  add_model_option(*app, options->model);
  add_common_options(*app);
  app->footer("Examples:\n"
              "  troupe guide bench --schemas schemas.jsonl\n"
              "  troupe guide bench --schemas schemas.jsonl --any-order --json");
  return {app, [options] { return bench(*options); }};
}

} // namespace troupe::cli
