#include "api/cli/chat_settings.hpp"
#include "api/cli/command.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/help_formatter.hpp"
#include "api/cli/sampling_options.hpp"
#include "api/cli/terminal/answer.hpp"
#include "api/cli/terminal/chat_turns.hpp"
#include "api/cli/terminal/chat_window.hpp"
#include "api/cli/terminal/progress.hpp"
#include "api/cli/terminal/quiet_typing.hpp"
#include "api/cli/terminal/standard_streams.hpp"
#include "api/cli/terminal/word_wrap.hpp"
#include "runtime/sampling/sampling_ranges.hpp"
#include "runtime/support/text/nearest_name.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <iostream>
#include <span>
#include <utility>

namespace troupe::cli {

namespace {

constexpr auto help = std::to_array<std::pair<const char*, const char*>>({
  {"/set NAME VALUE",
   "change a sampling flag, such as temperature or max-tokens, or system; the value `default` takes "
   "it back; /set alone shows what holds"},
  {"/continue", "go on with an answer that was cut"},
  {"/regen", "answer the last turn again"},
  {"/reset", "forget the conversation (also /clear)"},
  {"/exit", "leave (also /bye, /quit and Ctrl-D)"},
  {"/help", "show this (also /?)"},
});
constexpr auto keys = "Ctrl-C stops an answer; the partial answer is kept. A paste is one turn, however many lines it "
                      "has. To begin another line yourself, end the line with a backslash or press Alt-Enter. Up, Down "
                      "and Ctrl-R find what you typed before.";

/// In lines of at most so many columns.
std::string help_text(std::size_t columns) {
  constexpr std::size_t name_columns = 17;
  std::string text;
  for (const auto& [name, what] : help) {
    std::string line(name);
    line.resize(name_columns, ' ');
    text += line + wrapped(what, columns, name_columns) + '\n';
  }
  return text + wrapped(keys, columns) + '\n';
}

const std::vector<std::string> commands{"/set",  "/continue", "/regen", "/reset", "/clear",
                                        "/exit", "/bye",      "/quit",  "/help"};

bool is_one_of(std::string_view typed, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, typed) != names.end();
}

/// This many Ctrl-C during one answer end the program. Pressing it twice must not lose a conversation.
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

class conversation {
public:
  conversation(const chat_options& options, const engine& from, console& terminal)
    : options_(options),
      engine_(from),
      terminal_(terminal),
      turns_(terminal, options.keep_history),
      settings_(options.sampling, options.system) {}

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
  void handle(const std::string& turn) {
    const bool one_line = turn.find('\n') == turn.npos;
    if (is_one_of(turn, {"/help", "/?"}))
      print(help_text(help_columns()));
    else if (is_one_of(turn, {"/reset", "/clear"}))
      turns_so_far_.clear();
    else if (turn == "/set")
      print(settings_.told(*engine_.model()));
    else if (turn.starts_with("/set ") && one_line)
      attempt([&] { settings_.set(turn.substr(5)); });
    else if (turn == "/continue")
      attempt([&] { go_on(); });
    else if (turn == "/regen")
      attempt([&] { answer_again(); });
    else if (turn.starts_with('/') && one_line)
      refuse(turn);
    else if (turn.find_first_not_of(" \t\n") != turn.npos)
      attempt([&] { answer({turn}, turns_so_far_); });
  }

  /// What fails changes nothing.
  template <class F>
  void attempt(const F& what) {
    try {
      what();
    } catch (const failure& e) {
      std::cerr << "troupe: " << e.what() << std::endl;
      if (!turns_.typed())
        status_ = failed;
    }
  }

  static void refuse(const std::string& command) {
    const auto meant = nearest(command, commands);
    std::cerr << "troupe: unknown command `" << command << "`; "
              << (meant.empty() ? "/help lists the commands" : "did you mean " + meant + "?") << std::endl;
  }

  /// A question and its answer, as far as that has come.
  struct turn_so_far {
    std::string question, answer = {};
    std::vector<token_id> ids = {}; // of the answer
    bool cut = false;               // it has not ended by itself
    std::uint64_t again = 0;        // how often it was answered anew
  };

  void go_on() {
    if (turns_so_far_.empty() || !turns_so_far_.back().cut)
      throw failure(errc::bad_request, "there is no answer that was cut; /regen answers the last turn again");
    auto earlier = turns_so_far_;
    const auto last = std::move(earlier.back());
    earlier.pop_back();
    answer(last, std::move(earlier));
  }

  void answer_again() {
    if (turns_so_far_.empty())
      throw failure(errc::bad_request, "there is no turn yet to be answered again");
    auto earlier = turns_so_far_;
    turn_so_far anew{earlier.back().question};
    anew.again = earlier.back().again + 1;
    earlier.pop_back();
    answer(std::move(anew), std::move(earlier));
  }

  /// Answers a turn, or goes on with its answer. If it fails, the conversation stays unchanged.
  void answer(turn_so_far turn, std::vector<turn_so_far> earlier) {
    const auto model = engine_.model();
    const auto& sampling = settings_.sampling();
    generation request;
    request.sampling = sampling.over(model->defaults);
    request.sampling.seed += turn.again; // --seed fixes it
    sampling.add_texts(request.sampling, text_encoder(*model));
    const auto most = request.sampling.max_tokens;
    const auto told = sampling.told(request.sampling, model->defaults);
    answer_style style{.wrap = options_.wrap, .interrupts = turns_.typed() ? impatient : 2};
    const auto messages = fitting(*model, turn, earlier, most, style.note);
    request.prompt = chat_prompt(*model, messages);
    request.prompt.insert(request.prompt.end(), turn.ids.begin(), turn.ids.end());
    request.begins_text = turn.ids.empty();
    let_judge(*model, messages, request);
    keep_thinking_budget(*model, request, !turn.ids.empty());
    const quiet_typing quiet(turns_.typed());
    auto answered = print_answer(engine_, terminal_, std::move(request), style);
    turn.answer += answered.texts.front();
    turn.ids.insert(turn.ids.end(), answered.ids.begin(), answered.ids.end());
    turn.cut = answered.done.choices.empty() || answered.done.choices.front().reason != finish_reason::stop;
    earlier.push_back(std::move(turn));
    turns_so_far_ = std::move(earlier);
    if (const auto note = cut_note(answered.done, most, model->max_context, "; /continue goes on");
        !note.empty() && !options_.quiet)
      std::cerr << note << std::endl;
    if (options_.verbose)
      std::cerr << "sampling: " << told << "\n" << answered.timings() << std::endl;
  }

  /// The messages of the conversation, ending with the turn's question, without the oldest turns if they exceed the
  /// model's context: those are erased. The `note` says how many; it is shown once the turn is accepted, for one that
  /// is too long by itself changes nothing.
  std::vector<message> fitting(const model_info& model, const turn_so_far& turn, std::vector<turn_so_far>& earlier,
                               int most, std::string& note) const {
    const auto without = [&](std::size_t turns) {
      std::vector<message> messages;
      if (!settings_.system().empty())
        messages.push_back({"system", settings_.system()});
      for (const auto& each : std::span(earlier).subspan(turns)) {
        messages.push_back({"user", each.question});
        messages.push_back({"assistant", each.answer});
      }
      messages.push_back({"user", turn.question});
      return messages;
    };
    const auto left_out = turns_to_leave_out(earlier.size(), model.max_context, most, [&](std::size_t turns) {
      return chat_prompt(model, without(turns)).size() + turn.ids.size();
    });
    if (left_out > 0)
      note = "(the conversation has become too long for the context of " + std::to_string(model.max_context) +
        " tokens; " + (left_out == 1 ? "its oldest turn is" : "its " + std::to_string(left_out) + " oldest turns are") +
        " left out)";
    auto messages = without(left_out);
    earlier.erase(earlier.begin(), earlier.begin() + static_cast<std::ptrdiff_t>(left_out));
    return messages;
  }

  const chat_options& options_;
  const engine& engine_;
  console& terminal_;
  chat_turns turns_;
  chat_settings settings_;
  int status_ = 0; // of the program
  std::vector<turn_so_far> turns_so_far_;
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
  options->sampling.values.max_tokens = sampling_fields::most_int; // as many as the context has room for
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
              help_text(help_columns()) +
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
