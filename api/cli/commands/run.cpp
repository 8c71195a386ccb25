#include "api/cli/command.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/sampling_options.hpp"
#include "api/cli/technique_options.hpp"
#include "api/cli/terminal/answer.hpp"
#include "api/cli/terminal/progress.hpp"
#include "api/cli/terminal/standard_streams.hpp"
#include "api/cli/values.hpp"

#include <CLI/CLI.hpp>

#include <iostream>
#include <sstream>

#include <unistd.h>

namespace troupe::cli {

namespace {

struct run_options {
  std::string prompt;
  std::string system;
  bool raw = false;
  bool wrap = true;
  bool verbose = false;
  bool quiet = false;
  int answers = 1;
  engine_options engine;
  sampling_options sampling;
  flag_values form; // of the answer
  std::string negative_prompt;
};

/// The scores of ranked answers.
std::string scores(const answer& of) {
  std::ostringstream lines;
  for (const auto& one : of.done.choices)
    lines << "[" << one.index + 1 << "] score " << one.score << ", log-probability " << one.cumulative_logprob << "\n";
  return lines.str();
}

/// `echo` and editors end a prompt with a line break that nobody means.
std::string without_line_break(std::string text) {
  for (const char c : {'\n', '\r'})
    if (text.ends_with(c))
      text.pop_back();
  return text;
}

int run(const run_options& options) {
  const auto form = checked_usage([&] {
    options.sampling.check();
    return uses_of(options.form);
  });
  if (!options.system.empty() && !options.raw)
    require_chat_template(options.engine);
  const auto text = options.prompt == "-" ? without_line_break(read_stdin()) : options.prompt;
  if (text.empty())
    throw usage_failure("the prompt is empty: `troupe run \"Tell me a story\"`");
  console terminal; // outlives the engine, which posts to it
  const auto engine = start_engine(options.engine, options.quiet, options.verbose);
  const auto model = engine.model();

  generation request;
  std::vector<message> messages;
  if (options.raw || (!model->chat && options.system.empty())) {
    if (!options.raw && !options.quiet && model->generates) // else it is refused below
      std::cerr << model->id << " has no chat template: the text is continued as it is, as with --raw" << std::endl;
    request.prompt = plain_prompt(*model, text);
  } else {
    messages.push_back({"user", text});
    if (!options.system.empty())
      messages.insert(messages.begin(), {"system", options.system});
    request.prompt = chat_prompt(*model, messages);
    request.begins_text = true;
  }
  request.sampling = options.sampling.over(model->defaults, options.answers);
  for (const auto& use : form)
    request.sampling.techniques.set(use);
  if (!options.negative_prompt.empty())
    request.negative_prompt = plain_prompt(*model, options.negative_prompt);
  options.sampling.add_texts(request.sampling, text_encoder(*model));
  let_judge(*model, messages, request);
  keep_thinking_budget(*model, request);
  const auto seed = request.sampling.seed;
  const auto sampled = options.sampling.told(request.sampling, model->defaults);
  const bool ranked = request.sampling.ranked();
  const auto most = request.sampling.max_tokens;

  const auto answer = print_answer(engine, terminal, std::move(request), {.wrap = options.wrap});
  if (const auto note = cut_note(answer.done, most, model->max_context); !note.empty() && !options.quiet)
    std::cerr << note << std::endl;
  if (options.verbose)
    std::cerr << model->id << ", " << model->dtype << " on " << model->device << ", seed " << seed
              << "\nsampling: " << sampled << "\n"
              << (ranked ? scores(answer) : "") << answer.timings() << std::endl;
  return answer.interrupted ? interrupted : 0;
}

} // namespace

command add_run(CLI::App& troupe) {
  const auto options = std::make_shared<run_options>();
  auto* app = troupe.add_subcommand("run", "Answer one prompt: print the text as it is generated");
  auto* prompt = app->add_option("PROMPT", options->prompt,
                                 "What to say to the model; `-`, or no PROMPT in a pipe, reads it from stdin");
  app->add_option("--system", options->system, "A system message ahead of the prompt")->type_name("TEXT");
  app->add_flag("--raw", options->raw, "Continue the prompt as it is, without the model's chat template");
  add_integer(*app, "-n,--n", options->answers, 1, 128, "Number of answers; the prompt is computed once");
  add_sampling_options(*app, options->sampling);
  app
    ->add_option("--negative-prompt", options->negative_prompt,
                 "With --guidance-scale: lead the answer away from what would follow this text [the prompt's last "
                 "token]")
    ->type_name("TEXT")
    ->group(sampling_group);
  add_technique_options(*app, options->form, technique_option::answer, "Guide");
  add_engine_options(*app, options->engine);
  add_chat_template_option(*app, options->engine);
  app->add_flag("--verbose", options->verbose, "Print the stages of loading, times, rates and the seed on stderr")
    ->group(output_group);
  app->add_flag("--quiet", options->quiet, "Print nothing but the answer and errors")->group(output_group);
  add_wrap_option(*app, options->wrap);
  add_common_options(*app);
  app->footer("Examples:\n"
              "  troupe run \"Tell me a story about a fox\"\n"
              "  echo \"Tell me a story about the sea\" | troupe run\n"
              "  troupe run --temperature 0 --max-tokens 64 --raw \"Once upon a time\"\n"
              "  troupe run --json-schema book.json \"Name a book and its author\"\n"
              "  troupe run -m ~/models/Qwen3-0.6B --system \"Answer in one sentence.\" < question.txt\n"
              "Exit status: 0; 1 after a failure; 2 for a wrong command line, configuration file or guide; 130 after "
              "Ctrl-C; 141 if the reader of stdout has gone.");
  return {app, [app, options, prompt] {
            if (prompt->count() == 0) {
              if (isatty(STDIN_FILENO))
                throw usage_failure("a prompt is missing: `troupe run \"Tell me a story\"`, or `troupe chat` to talk");
              options->prompt = "-";
            }
            const auto sequences = checked_usage(
              [&] { return options->sampling.max_sequences(options->engine.max_sequences, options->answers); });
            if (app->count("--max-sequences") == 0)
              options->engine.max_sequences = sequences;
            return run(*options);
          }};
}

} // namespace troupe::cli
