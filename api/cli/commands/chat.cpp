#include "api/cli/command.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/sampling_options.hpp"
#include "api/cli/suggestions.hpp"
#include "api/cli/terminal/answer.hpp"
#include "api/cli/terminal/chat_history.hpp"
#include "api/cli/terminal/chat_window.hpp"
#include "api/cli/terminal/line_editor.hpp"
#include "api/cli/terminal/progress.hpp"
#include "api/cli/terminal/standard_streams.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <iostream>
#include <optional>

#include <unistd.h>

namespace troupe::cli {

namespace {

constexpr auto help = "/reset  forget the conversation (also /clear)\n"
                      "/exit   leave (also /bye, /quit and Ctrl-D)\n"
                      "/help   show this (also /?)\n"
                      "Ctrl-C stops an answer; the partial answer is kept.\n"
                      "A paste is one turn, however many lines it has. To begin another line yourself, end the line\n"
                      "with a backslash or press Alt-Enter. Up, Down and Ctrl-R find what you typed before.\n";

const std::vector<std::string> commands{"/reset", "/clear", "/exit", "/bye", "/quit", "/help"};

bool is_one_of(std::string_view typed, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, typed) != names.end();
}

/// So many Ctrl-C during one answer end the program. Pressing it twice must not lose a conversation.
constexpr int impatient = 5;

struct chat_options {
  std::string system;
  bool keep_history = true;
  bool wrap = true;
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
      if (input == console::input::interrupted && turns_.typed() && !terminal_.asked_to_end()) {
        print("\n");
        std::cerr << "(Ctrl-D or /exit leaves)" << std::endl;
        continue;
      }
      if (input != console::input::line) {
        if (turns_.typed())
          print("\n");
        return input == console::input::end ? status_ : interrupted;
      }
      if (turn.ends_with('\r'))
        turn.pop_back();
      if (is_one_of(turn, {"/exit", "/bye", "/quit"}))
        return status_;
      handle(turn);
      if (terminal_.asked_to_end()) // by SIGTERM, during the answer
        return interrupted;
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
    if (is_one_of(turn, {"/help", "/?"}))
      print(help);
    else if (is_one_of(turn, {"/reset", "/clear"}))
      reset();
    else if (turn.starts_with('/') && one_line)
      refuse(turn);
    else if (turn.find_first_not_of(" \t\n") != turn.npos)
      answer_turn(turn);
  }

  static void refuse(const std::string& command) {
    const auto meant = nearest(command, commands);
    std::cerr << "troupe: unknown command `" << command << "`; "
              << (meant.empty() ? "/help lists the commands" : "did you mean " + meant + "?") << std::endl;
  }

  /// Answers one turn. If it fails, the conversation stays unchanged.
  void answer_turn(const std::string& text) {
    try {
      generation request;
      const auto model = engine_.model();
      request.sampling = options_.sampling.over(model->defaults.sampling);
      options_.sampling.add_texts(request.sampling, text_encoder(*model));
      request.steering = options_.sampling.steering;
      const auto most = request.sampling.max_tokens;
      answer_style style{.wrap = options_.wrap, .interrupts = turns_.typed() ? impatient : 2};
      auto messages = fitting(*model, text, most, style.note);
      request.prompt = chat_prompt(*model, messages);
      request.begins_text = true;
      let_judge(*model, messages, request);
      keep_thinking_budget(*model, request);
      auto answer = print_answer(engine_, terminal_, std::move(request), style);
      messages.push_back({"assistant", std::move(answer.texts.front())});
      messages_ = std::move(messages);
      if (const auto note = cut_note(answer.done, most, model->max_context); !note.empty() && !options_.quiet)
        std::cerr << note << std::endl;
      if (options_.verbose)
        std::cerr << answer.timings() << std::endl;
    } catch (const failure& e) {
      std::cerr << "troupe: " << e.what() << std::endl;
      if (!turns_.typed())
        status_ = failed;
    }
  }

  /// The conversation and the new turn, without the oldest turns if they exceed the model's context. The `note` says
  /// how many; it is shown once the turn is accepted, for one that is too long by itself changes nothing.
  std::vector<message> fitting(const model_info& model, const std::string& text, int answer, std::string& note) const {
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
      note = "(the conversation has become too long for the context of " + std::to_string(model.max_context) +
        " tokens; " + (left_out == 1 ? "its oldest turn is" : "its " + std::to_string(left_out) + " oldest turns are") +
        " left out)";
    return without(left_out);
  }

  const chat_options& options_;
  const engine& engine_;
  console& terminal_;
  turns turns_;
  int status_ = 0;                // of the program
  std::vector<message> messages_; // an optional system message, then user and assistant alternating
};

int chat(const chat_options& options) {
  require_chat_template(options.engine);
  console terminal; // outlives the engine, which posts to it
  const auto engine = start_engine(options.engine, options.quiet, options.verbose);
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
    "Do not keep what you type in ~/.local/state/troupe/chat-history, where the next chat finds it");
  add_sampling_options(*app, options->sampling);
  add_engine_options(*app, options->engine);
  add_chat_template_option(*app, options->engine);
  app->add_flag("--verbose", options->verbose, "Print the stages of loading, times and rates on stderr")
    ->group(output_group);
  app->add_flag("--quiet", options->quiet, "Print nothing but answers and errors")->group(output_group);
  add_wrap_option(*app, options->wrap);
  add_common_options(*app);
  app->footer(std::string("Each line of stdin is a turn; only what is new in a turn is computed. When the conversation "
                          "becomes longer than the model's context, its oldest turns are left out, with a note.\n"
                          "Commands and keys:\n") +
              help +
              "Examples:\n"
              "  troupe chat\n"
              "  troupe chat -m ~/models/Qwen3-0.6B --system \"Answer in one sentence.\"\n"
              "  printf 'Tell me a story about a fox\\nWho was in it?\\n' | troupe chat --temperature 0");
  return {app, [app, options] {
            checked_usage([&] { options->sampling.check(); });
            const auto sequences = options->sampling.max_sequences(options->engine.max_sequences);
            if (app->count("--max-sequences") == 0)
              options->engine.max_sequences = sequences;
            return chat(*options);
          }};
}

} // namespace troupe::cli
