#include "api/catalogue/catalogue.hpp"
#include "api/cli/batch_run.hpp"
#include "api/cli/command.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/outputs.hpp"
#include "api/cli/terminal/console.hpp"
#include "api/cli/terminal/progress.hpp"
#include "api/cli/values.hpp"

#include <CLI/CLI.hpp>

#include <iostream>

namespace troupe::cli {

namespace {

struct run_batch_options {
  std::string in, out;
  engine_options engine;
  bool overwrite = false, quiet = false;
};

/// "requests.jsonl" becomes "requests_output.jsonl".
std::filesystem::path output_of(const std::filesystem::path& in) {
  auto name = in.stem().string() + "_output" + in.extension().string();
  return in.parent_path() / name;
}

std::string counted(std::size_t number, const char* what) {
  return std::to_string(number) + ' ' + what + (number == 1 ? "" : "s");
}

int run_batch_file(const CLI::App& app, const run_batch_options& options) {
  const batch_files files{options.in, options.out.empty() ? output_of(options.in) : std::filesystem::path(options.out),
                          options.overwrite};
  check_output(app, files.out.string());
  const auto from = checked_usage([&] { return prepare_batch(files); });
  if (from.answered == from.requests) {
    if (!options.quiet)
      std::cerr << (from.requests == 0
                      ? options.in + " has no requests"
                      : files.out.string() + " has all answers already: " + std::to_string(from.requests))
                << std::endl;
    return 0;
  }
  console terminal; // outlives the engine, which posts to it
  terminal.catch_interrupts();
  const auto engine = start_engine(options.engine, options.quiet, false);
  catalogue models(engine);
  progress bar(options.quiet, false);
  const auto show = [&](std::size_t lines) {
    load_status status;
    status.done_bytes = lines;
    status.total_bytes = from.requests;
    bar.show(status);
  };
  show(from.answered);
  const auto most = 2 * static_cast<std::size_t>(options.engine.replicas * options.engine.max_sequences);
  const auto outcome = run_batch(files, from, models, most, terminal, show);
  bar.end_bar();
  if (outcome.interrupted)
    std::cerr << "Stopped; the same command goes on where " << files.out.string() << " ends" << std::endl;
  else if (!options.quiet)
    std::cerr << counted(outcome.answered, "request") << " answered"
              << (from.answered > 0 ? " beside " + std::to_string(from.answered) + " of an earlier run" : "")
              << (outcome.failed > 0 ? ", " + std::to_string(outcome.failed) + " failed" : "") << ": "
              << files.out.string() << std::endl;
  return outcome.interrupted ? interrupted : outcome.failed > 0 ? failed : 0;
}

} // namespace

command add_run_batch(CLI::App& troupe) {
  const auto options = std::make_shared<run_batch_options>();
  auto* app = troupe.add_subcommand("run-batch", "Answer the requests of a file, without a server");
  app->add_option("FILE", options->in, "Requests in OpenAI's batch format, a JSON object on each line")
    ->required()
    ->type_name("FILE");
  add_file(*app, "-o,--out", options->out, "Where the answers go [beside FILE, with _output in its name]");
  app->add_flag("--overwrite", options->overwrite, "Begin anew, whatever the output has")->group(output_group);
  add_engine_options(*app, options->engine);
  add_chat_template_option(*app, options->engine);
  app->add_flag("--quiet", options->quiet, "Print nothing but errors")->group(output_group);
  add_common_options(*app);
  app->footer("A line of FILE:\n"
              "  {\"custom_id\": \"one\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\",\n"
              "   \"body\": {\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}}\n"
              "The answers have the order of FILE. A run that was interrupted goes on where its output ends.\n"
              "Examples:\n"
              "  troupe run-batch requests.jsonl\n"
              "  troupe run-batch requests.jsonl --out answers.jsonl -m ~/models/Qwen3-0.6B\n"
              "Exit status: 0; 1 if a request failed; 2 for a wrong command line; 130 after Ctrl-C.");
  return {app, [app, options] { return run_batch_file(*app, *options); }};
}

} // namespace troupe::cli
