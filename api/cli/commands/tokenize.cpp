#include "api/cli/command.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/terminal/standard_streams.hpp"
#include "api/cli/values.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/support/text/visible_text.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

#include <CLI/CLI.hpp>

#include <iostream>
#include <limits>

namespace troupe::cli {

namespace {

struct tokenize_options {
  std::string text;
  std::string model;
  bool decode = false;
  bool keep_special = false;
  bool add_special = true;
  bool json = false;
};

void print_ids(const tokenizer& tokens, const tokenize_options& options, const std::string& text) {
  const auto ids = tokens.encode(text, options.add_special);
  if (options.json) {
    std::string pieces;
    for (const auto id : ids)
      pieces += (pieces.empty() ? "" : ",") + json_text(tokens.token(id));
    std::cout << "{\"count\":" << ids.size() << ",\"tokens\":" << json_ids(ids) << ",\"pieces\":[" << pieces << "]}\n";
    return;
  }
  for (const auto id : ids)
    std::cout << id << "\t" << visible_name(tokens.token_bytes(id)) << "\n";
}

void print_text(const tokenizer& tokens, const tokenize_options& options, const std::string& text) {
  std::vector<token_id> ids;
  const auto parsed = [&] {
    try {
      return parse_integers(text, 0, std::numeric_limits<token_id>::max());
    } catch (const failure& e) {
      throw failure(errc::bad_request, std::string("an id ") + e.what());
    }
  };
  for (const auto id : parsed()) {
    if (static_cast<std::size_t>(id) >= tokens.vocab_size())
      throw failure(errc::bad_request,
                    "token " + std::to_string(id) + " is outside the vocabulary of " +
                      std::to_string(tokens.vocab_size()));
    ids.push_back(static_cast<token_id>(id));
  }
  const auto decoded = tokens.decode(ids, !options.keep_special);
  if (options.json)
    std::cout << "{\"text\":" << json_text(decoded) << "}\n";
  else
    std::cout << decoded << "\n";
}

int tokenize(const tokenize_options& options) {
  require_model(options.model);
  const auto tokens = open_tokenizer(options.model);
  const auto text = options.text == "-" ? read_stdin() : options.text;
  (options.decode ? print_text : print_ids)(*tokens, options, text);
  return 0;
}

} // namespace

command add_tokenize(CLI::App& troupe) {
  const auto options = std::make_shared<tokenize_options>();
  auto* app = troupe.add_subcommand("tokenize", "Show the tokens of a text, or the text of tokens");
  app->add_option("TEXT", options->text, "The text, or with --decode the ids; `-` reads stdin")->required();
  app->add_flag("--decode", options->decode, "Turn ids, separated by spaces or commas, back into text");
  app->add_flag_function(
    "--no-special", [options](std::int64_t count) { options->add_special = count <= 0; },
    "Without --decode: do not add the special tokens that the tokenizer puts around a text, such as BOS");
  app->add_flag("--keep-special", options->keep_special, "With --decode: show special tokens too");
  app->add_flag("--json", options->json, "Print one JSON object rather than lines")->group(output_group);
  add_model_option(*app, options->model);
  add_common_options(*app);
  app->footer("Examples:\n"
              "  troupe tokenize \"Once upon a time\"\n"
              "  troupe tokenize --decode \"12 7 300\"\n"
              "  troupe tokenize --json - < story.txt");
  return {app, [options] { return tokenize(*options); }};
}

} // namespace troupe::cli
