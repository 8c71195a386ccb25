#include "api/cli/command.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/sampling_options.hpp"
#include "api/cli/terminal/answer.hpp"
#include "api/cli/terminal/chat_history.hpp"
#include "api/cli/terminal/chat_window.hpp"
#include "api/cli/terminal/line_editor.hpp"
#include "api/cli/terminal/progress.hpp"
#include "api/cli/terminal/standard_streams.hpp"

#include <CLI/CLI.hpp>

#include <filesystem>
#include <iostream>
#include <optional>

#include <unistd.h>

namespace troupe::cli {

namespace {

constexpr auto help = "/reset  forget the conversation\n"
                      "/exit   leave (also Ctrl-D)\n"
                      "/help   this\n"
                      "Ctrl-C stops an answer; what there is of it stays part of the conversation.\n"
                      "What is pasted is one turn, however many lines it has; a backslash at the end of a line, or\n"
                      "Alt-Enter, goes on with another. Up and down, and Ctrl-R, find what was typed before.\n";

struct chat_options {
  std::string system;
  bool keep_history = true;
  bool verbose = false;
  bool quiet = false;
  engine_options engine;
  sampling_options sampling;
};

/// Reads turns from a terminal, with a history, or from the lines of a pipe.
class turns {
public:
  turns(console& terminal, bool keep_history)
    : terminal_(terminal), typed_(isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) {
    if (!typed_)
      return;
    std::vector<std::string> earlier;
    if (keep_history)
      file_ = chat_history_file();
    keep([&] { earlier = read_chat_history(file_); });
    editor_.emplace(terminal, earlier);
  }

  bool typed() const { return typed_; }

  console::input next(std::string& turn) {
    terminal_.catch_interrupts();
    if (!editor_)
      return terminal_.read_line(turn);
    const auto input = editor_->read(turn);
    if (input == console::input::line && turn.find_first_not_of(" \t\n") != turn.npos)
      keep([&] { add_to_chat_history(file_, turn); });
    return input;
  }

private:
  /// Reports once that the history cannot be kept.
  template <class F>
  void keep(const F& what) {
    try {
      if (!file_.empty())
        what();
    } catch (const failure& e) {
      std::cerr << "troupe: the history is not kept: " << e.what() << std::endl;
      file_.clear();
    }
  }

  console& terminal_;
  bool typed_;
  std::filesystem::path file_; // empty: none
  std::optional<line_editor> editor_;
};

class conversation {
public:
  conversation(const chat_options& options, const engine& from, console& terminal)
    : options_(options), engine_(from), terminal_(terminal), turns_(terminal, options.keep_history) {
    reset();
  }

  int run() {
    if (turns_.typed() && !options_.quiet)
      std::cerr << engine_.model()->id << "; /help shows what else can be typed" << std::endl;
    for (std::string turn;;) {
      const auto input = turns_.next(turn);
      if (input != console::input::line) {
        if (turns_.typed())
          print("\n");
        return input == console::input::end ? 0 : interrupted;
      }
      if (turn.ends_with('\r'))
        turn.pop_back();
      if (turn == "/exit")
        return 0;
      handle(turn);
    }
  }

private:
  void reset() {
    messages_.clear();
    if (!options_.system.empty())
      messages_.push_back({"system", options_.system});
  }

  void handle(const std::string& turn) {
    const bool one_line = turn.find('\n') == turn.npos;
    if (turn == "/help")
      print(help);
    else if (turn == "/reset")
      reset();
    else if (turn.starts_with('/') && one_line)
      std::cerr << "troupe: unknown command `" << turn << "`; /help shows those there are" << std::endl;
    else if (turn.find_first_not_of(" \t\n") != turn.npos)
      answer_turn(turn);
  }

  /// Answers one turn. If it fails, the conversation stays unchanged.
  void answer_turn(const std::string& text) {
    try {
      generation request;
      const auto model = engine_.model();
      request.sampling = options_.sampling.over(model->defaults.sampling);
      options_.sampling.add_texts(request.sampling, text_encoder(*model));
      request.steering = options_.sampling.steering;
      auto messages = fitting(*model, text, request.sampling.max_tokens);
      request.prompt = chat_prompt(*model, messages);
      auto answer = print_answer(engine_, terminal_, std::move(request));
      messages.push_back({"assistant", std::move(answer.texts.front())});
      messages_ = std::move(messages);
      if (options_.verbose)
        std::cerr << answer.timings() << std::endl;
    } catch (const failure& e) {
      std::cerr << "troupe: " << e.what() << std::endl;
    }
  }

  /// The conversation and the new turn, without the oldest turns if they exceed the model's context.
  std::vector<message> fitting(const model_info& model, const std::string& text, int answer) const {
    const std::size_t system = options_.system.empty() ? 0 : 1, earlier = (messages_.size() - system) / 2;
    const auto without = [&](std::size_t turns) {
      auto messages = messages_;
      const auto first = messages.begin() + static_cast<std::ptrdiff_t>(system);
      messages.erase(first, first + 2 * static_cast<std::ptrdiff_t>(turns));
      messages.push_back({"user", text});
      return messages;
    };
    const auto left_out = turns_to_leave_out(
      earlier, model.max_context, answer, [&](std::size_t turns) { return chat_prompt(model, without(turns)).size(); });
    if (left_out > 0)
      std::cerr << "(the conversation has become too long for the model's " << model.max_context << " tokens; "
                << (left_out == 1 ? "its oldest turn is" : "its " + std::to_string(left_out) + " oldest turns are")
                << " left out)" << std::endl;
    return without(left_out);
  }

  const chat_options& options_;
  const engine& engine_;
  console& terminal_;
  turns turns_;
  std::vector<message> messages_; // an optional system message, then user and assistant alternating
};

int chat(const chat_options& options) {
  console terminal; // outlives the engine, which posts to it
  const auto engine = start_engine(options.engine, options.quiet);
  // Fails now rather than at every turn if the model cannot chat.
  chat_prompt(*engine.model(), {{"user", "Hello"}});
  return conversation(options, engine, terminal).run();
}

} // namespace

command add_chat(CLI::App& troupe) {
  const auto options = std::make_shared<chat_options>();
  auto* app = troupe.add_subcommand("chat", "Talk with a model, turn by turn");
  app->add_option("--system", options->system, "A system message that starts the conversation")->type_name("TEXT");
  app->add_flag_function(
    "--no-history", [options](std::int64_t count) { options->keep_history = count <= 0; },
    "Keep what is typed for this chat only, else also in ~/.local/state/troupe/chat-history, for the next one");
  add_sampling_options(*app, options->sampling);
  add_engine_options(*app, options->engine);
  app->add_flag("--verbose", options->verbose, "Print times and rates on stderr")->group(output_group);
  app->add_flag("--quiet", options->quiet, "Do not show the progress of loading")->group(output_group);
  add_common_options(*app);
  app->footer(
    std::string(
      "Each line of stdin is a turn; what the prefix cache has of it is not computed again. Of a conversation\n"
      "that has become longer than the model's context the oldest turns are left out, with a note.\n"
      "Other lines:\n") +
    help +
    "Examples:\n"
    "  troupe chat\n"
    "  printf 'Tell me a story about a fox\\nWho was in it?\\n' | troupe chat --temperature 0");
  return {app, [app, options] {
            const auto sequences = options->sampling.max_sequences(options->engine.max_sequences);
            if (app->count("--max-sequences") == 0)
              options->engine.max_sequences = sequences;
            return chat(*options);
          }};
}

} // namespace troupe::cli
