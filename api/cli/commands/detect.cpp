#include "api/cli/command.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/terminal/standard_streams.hpp"
#include "api/cli/values.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/techniques/watermark/technique.hpp"
#include "runtime/techniques/watermark/watermark_fields.hpp"

#include <CLI/CLI.hpp>

#include <iostream>
#include <limits>
#include <sstream>

namespace troupe::cli {

namespace {

struct detect_options {
  std::string text;
  std::string model;
  bool ids = false;
  bool lines = false;
  bool json = false;
  std::string mark = "green", key_file;
};

void report(const watermarks::options& mark, std::span<const token_id> tokens, bool json) {
  const auto found = watermarks::detect(mark, tokens);
  if (json) {
    std::cout << watermarks::detection_object(mark, found) << "\n";
    return;
  }
  std::cout << "z " << found.z << ", p " << found.p << ", " << found.tokens << " tokens counted\n";
}

int detect(const detect_options& options) {
  require_model(options.model);
  flag_values flags{{"watermark", {options.mark}}};
  if (!options.key_file.empty())
    flags["watermark_key_file"] = {options.key_file};
  const auto mark = watermarks::mark_of_flags(flags);
  const auto tokens = open_tokenizer(options.model);
  const auto text = options.text == "-" ? read_stdin() : options.text;
  const auto judge = [&](const std::string& one) {
    if (!options.ids)
      return report(*mark, tokens->encode(one, false), options.json);
    std::vector<token_id> ids;
    for (const auto id : parse_integers(one, 0, std::numeric_limits<token_id>::max()))
      ids.push_back(static_cast<token_id>(id));
    report(*mark, ids, options.json);
  };
  if (!options.lines) {
    judge(text);
    return 0;
  }
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    judge(line);
  return 0;
}

} // namespace

command add_detect(CLI::App& troupe) {
  const auto options = std::make_shared<detect_options>();
  auto* app = troupe.add_subcommand("detect", "Show whether a text has a watermark");
  app->add_option("TEXT", options->text, "The text; `-` reads stdin")->required();
  app->add_flag("--ids", options->ids, "Read token ids, separated by spaces or commas, instead of text");
  app->add_flag("--lines", options->lines, "Judge each line on its own");
  app->add_flag("--json", options->json, "Print JSON objects rather than lines")->group(output_group);
  app->add_option("--watermark", options->mark, "The watermark: green, gumbel, or a JSON object as in requests [green]")
    ->type_name("MARK")
    ->group(model_group);
  add_file(*app, "--watermark-key-file", options->key_file,
           "A file with its secret key [the value of TROUPE_WATERMARK_KEY]")
    ->group(model_group);
  add_model_option(*app, options->model);
  add_common_options(*app);
  app->footer("z: standard deviations above the score of unmarked texts; p: how often an unmarked text scores as high. "
              "--model names the model that wrote the text, of which only the tokenizer is used.\n"
              "Examples:\n"
              "  troupe detect --watermark-key-file key.txt - < letter.txt\n"
              "  troupe detect --watermark '{\"type\":\"green\",\"scheme\":\"selfhash\"}' --json \"Once upon a time\"");
  return {app, [options] { return detect(*options); }};
}

} // namespace troupe::cli
