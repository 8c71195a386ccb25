#include "api/cli/answer.hpp"
#include "api/cli/command.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/progress.hpp"
#include "api/cli/sampling_options.hpp"

#include <CLI/CLI.hpp>

#include <iostream>

#include <unistd.h>

namespace troupe::cli {

namespace {

constexpr auto help = "/reset  forget the conversation\n"
                      "/exit   leave (also Ctrl-D)\n"
                      "/help   this\n"
                      "Ctrl-C stops an answer; what there is of it stays part of the conversation.\n";

struct chat_options {
  std::string system;
  bool verbose = false;
  bool quiet = false;
  engine_options engine;
  sampling_options sampling;
};

class conversation {
public:
  conversation(const chat_options& options, const engine& from, console& terminal)
    : options_(options), engine_(from), terminal_(terminal) {
    reset();
  }

  int run() {
    const bool typed = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    if (typed && !options_.quiet)
      std::cerr << engine_.model()->id << "; /help shows what else can be typed" << std::endl;
    for (std::string line;;) {
      if (typed)
        std::cout << "> " << std::flush;
      terminal_.catch_interrupts();
      const auto input = terminal_.read_line(line);
      if (input != console::input::line) {
        if (typed)
          std::cout << std::endl;
        return input == console::input::end ? 0 : interrupted;
      }
      if (line.ends_with('\r'))
        line.pop_back();
      if (line == "/exit")
        return 0;
      handle(line);
    }
  }

private:
  void reset() {
    messages_.clear();
    if (!options_.system.empty())
      messages_.push_back({"system", options_.system});
  }

  void handle(const std::string& line) {
    if (line == "/help")
      std::cout << help << std::flush;
    else if (line == "/reset")
      reset();
    else if (line.starts_with('/'))
      std::cerr << "troupe: unknown command `" << line << "`; /help shows those there are" << std::endl;
    else if (line.find_first_not_of(" \t") != std::string::npos)
      say(line);
  }

  /// One turn. Where it fails, the conversation is as it was before.
  void say(const std::string& text) {
    messages_.push_back({"user", text});
    try {
      generation request;
      const auto model = engine_.model();
      request.prompt = chat_prompt(*model, messages_);
      request.sampling = options_.sampling.over(model->defaults);
      auto answer = print_answer(engine_, terminal_, std::move(request));
      messages_.push_back({"assistant", std::move(answer.texts.front())});
      if (options_.verbose)
        std::cerr << answer.timings() << std::endl;
    } catch (const failure& e) {
      messages_.pop_back();
      std::cerr << "troupe: " << e.what() << std::endl;
    }
  }

  const chat_options& options_;
  const engine& engine_;
  console& terminal_;
  std::vector<message> messages_;
};

int chat(const chat_options& options) {
  console terminal; // outlives the engine, which posts to it
  const auto engine = start_engine(options.engine, options.quiet);
  // Says at once what every turn would say otherwise.
  chat_prompt(*engine.model(), {{"user", "Hello"}});
  return conversation(options, engine, terminal).run();
}

} // namespace

command add_chat(CLI::App& troupe) {
  const auto options = std::make_shared<chat_options>();
  auto* app = troupe.add_subcommand("chat", "Talk with a model, turn by turn");
  app->add_option("--system", options->system, "A system message that starts the conversation")->type_name("TEXT");
  add_sampling_options(*app, options->sampling);
  add_engine_options(*app, options->engine);
  app->add_flag("--verbose", options->verbose, "Print times and rates on stderr")->group(output_group);
  app->add_flag("--quiet", options->quiet, "Do not show how loading gets on")->group(output_group);
  add_common_options(*app);
  app->footer(std::string("Each line of stdin is a turn; what the prefix cache has of it is not computed again.\n"
                          "Other lines:\n") +
              help +
              "Examples:\n"
              "  troupe chat\n"
              "  printf 'Tell me a story about a fox\\nWho was in it?\\n' | troupe chat --temperature 0");
  return {app, [app, options] {
            if (app->count("--max-sequences") == 0) // more would only make the KV cache larger
              options->engine.max_sequences = 1;
            return chat(*options);
          }};
}

} // namespace troupe::cli
