#include "api/cli/command_line.hpp"

#include "api/cli/common_options.hpp"
#include "api/cli/config_file.hpp"
#include "api/cli/help_formatter.hpp"
#include "api/cli/idle_flags.hpp"
#include "api/cli/outputs.hpp"
#include "api/cli/suggestions.hpp"
#include "api/cli/terminal/fatal_errors.hpp"
#include "api/cli/terminal/standard_streams.hpp"
#include "api/cli/values.hpp"
#include "kernels/ops.hpp"
#include "runtime/import/local_models.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/text/nearest_name.hpp"
#include "runtime/support/text/utf8.hpp"
#include "runtime/support/text/visible_text.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <new>
#include <sstream>
#include <string_view>
#include <system_error>

namespace troupe::cli {

namespace {

constexpr auto description = "Troupe runs large language models on this machine: it answers a prompt, holds a chat, "
                             "or serves OpenAI's API.";

constexpr auto footer = "Examples:\n"
                        "  troupe run \"Tell me a story about a fox\"\n"
                        "  troupe chat --model ~/models/Qwen3-0.6B\n"
                        "  troupe serve --port 9000\n"
                        "`troupe COMMAND --help` shows the flags of a command.";

/// Joins the lines of a CLI11 message.
std::string sentence(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

int report(const std::string& text, int status) {
  std::fflush(stdout);
  std::cerr << "troupe: " << sentence(text) << std::endl;
  return status;
}

/// The innermost command on the command line.
const CLI::App& chosen_of(const CLI::App& root) {
  const auto* at = &root;
  for (auto below = at->get_subcommands(); !below.empty(); below = at->get_subcommands())
    at = below.front();
  return *at;
}

/// "troupe bench model"
std::string path_of(const CLI::App& root, const CLI::App& command) {
  return &command == &root ? root.get_name() : path_of(root, *command.get_parent()) + " " + command.get_name();
}

/// `meant`: what there is that the user may have wanted; if empty, `otherwise` says how to find it.
std::string unknown(const std::string& what, const std::string& shown, const std::string& meant,
                    const std::string& otherwise) {
  return "there is no " + what + " " + shown + (meant.empty() ? otherwise : "; did you mean " + meant + "?");
}

/// The long flags of `command` as typed, without dashes in front.
std::vector<std::string> flags_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const auto* option : command.get_options())
    if (!option->get_group().empty())
      names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  return names;
}

/// What a user who typed the unknown flag `typed` may have meant, as it is to be typed; or nothing.
std::string meant_by_flag(const CLI::App& command, const std::string& typed) {
  const auto name = typed.substr(std::min(typed.find_first_not_of('-'), typed.size()));
  const auto known = flags_of(command);
  std::string meant(name_here(name));
  if (meant == "PROMPT" && command.get_option_no_throw("PROMPT"))
    return "`" + command.get_parent()->get_name() + " " + command.get_name() + " \"PROMPT\"`";
  if (std::ranges::find(known, meant) == known.end())
    meant = nearest(name, known);
  return meant.empty() ? meant : "--" + meant;
}

std::string meant_by_command(const CLI::App& parent, const std::string& typed) {
  std::vector<std::string> known;
  for (const auto* command : parent.get_subcommands({}))
    known.push_back(command->get_name());
  std::string meant(name_here(typed));
  if (std::ranges::find(known, meant) == known.end())
    meant = nearest(typed, known);
  return meant.empty() ? meant : "`" + meant + "`";
}

/// Whether a word in front of a prompt is a model, as in `ollama run llama3 "hi"`.
bool names_model(const std::string& word) {
  if (word.find_first_of(" \n") != word.npos)
    return false;
  try {
    return word.find_first_of("0123456789:/") != word.npos || find_local_model(word);
  } catch (const failure&) { // it could be several
    return true;
  }
}

/// What a user wanted who gave more arguments than a command takes: a model by its name alone, or words that are one
/// text; or nothing.
std::string meant_by_arguments(const CLI::App& root, const CLI::App& chosen) {
  constexpr std::size_t longest = 60;
  const auto rest = chosen.remaining();
  const auto* text = chosen.get_option_no_throw("PROMPT");
  text = text ? text : chosen.get_option_no_throw("TEXT");
  const bool takes_model = chosen.get_option_no_throw("--model");
  const auto with_model = [&](const std::string& model) {
    return "a model is given with -m: `" + path_of(root, chosen) + " -m " + model;
  };
  if (!text)
    return takes_model && rest.size() == 1 ? with_model(rest.front()) + "`" : "";
  if (text->count() == 0)
    return {};
  const auto first = text->as<std::string>();
  if (takes_model && rest.size() == 1 && names_model(first))
    return with_model(first) + " \"" + rest.front().substr(0, longest) + "\"`";
  auto all = first;
  for (const auto& word : rest)
    all += ' ' + word;
  if (all.size() > longest)
    all = all.substr(0, longest) + "...";
  return "put the text in quotes: `" + path_of(root, chosen) + " \"" + to_utf8(all) + "\"`";
}

/// CLI11's message, or a clearer one for missing and unknown commands and flags. What states the valid range or a
/// likelier name needs no hint at --help.
std::string describe(const CLI::App& root, const CLI::App& chosen, const CLI::ParseError& e) {
  const auto rest = chosen.remaining();
  const auto help = " (see `" + path_of(root, chosen) + " --help`)";
  if (rest.empty())
    return std::string(e.what()) + (dynamic_cast<const CLI::RequiredError*>(&e) ? help : std::string());
  if (const auto flag = std::ranges::find_if(rest, [](const std::string& a) { return a.starts_with('-'); });
      flag != rest.end()) {
    const auto name = flag->substr(0, flag->find('='));
    const auto all = " (see `" + path_of(root, chosen) + " --help-all`)";
    return unknown("flag", name, meant_by_flag(chosen, name), all);
  }
  if (chosen.get_require_subcommand_min() > 0) {
    const std::string instead(&chosen == &root ? instead_of(rest.front()) : "");
    return instead.empty() ? unknown("command", "`" + rest.front() + "`", meant_by_command(chosen, rest.front()), help)
                           : "there is no command `" + rest.front() + "`: " + instead;
  }
  const auto meant = meant_by_arguments(root, chosen);
  return "unexpected argument `" + rest.front() + "`" + (meant.empty() ? help : "; " + meant);
}

/// `troupe help run` is `troupe run --help`, and a group of commands alone asks for help, too.
std::vector<std::string> with_help(std::vector<std::string> arguments, const CLI::App& root) {
  if (!arguments.empty() && arguments.front() == "help") {
    arguments.erase(arguments.begin());
    arguments.emplace_back("--help");
    return arguments;
  }
  const auto* at = &root;
  for (const auto& argument : arguments) {
    const auto found = at->get_subcommands([&](const CLI::App* c) { return c->get_name() == argument; });
    if (found.empty())
      return arguments;
    at = found.front();
  }
  if (at->get_require_subcommand_min() > 0)
    arguments.emplace_back("--help");
  return arguments;
}

void parse(CLI::App& root, std::vector<std::string> arguments) {
  std::ranges::reverse(arguments); // CLI11 parses from the back
  root.parse(arguments);
}

/// Refuses empty names of files, and empty keys: a shell makes them of variables that are not set, and a server without
/// its policy or its keys is not what was meant.
void refuse_empty_names(const CLI::App& command) {
  constexpr std::array<std::string_view, 5> names{"FILE", "PATH", "FOLDER", "DIR", "KEY"};
  for (const auto* option : command.get_options()) {
    const auto& given = option->results();
    const auto type = option->get_type_name();
    if (std::ranges::any_of(names, [&](std::string_view name) { return type.starts_with(name); }) &&
        std::ranges::find(given, std::string()) != given.end())
      throw failure(errc::bad_request, option->get_name() + ": must not be empty");
  }
}

/// Refuses a second model where one is expected: neither may be left out without a word.
void refuse_second_models(const CLI::App& command) {
  for (const auto* option : command.get_options()) {
    const auto& given = option->results();
    if (option->get_type_name() == "PATH" && option->get_expected_max() == 1 && given.size() > 1 &&
        given.front() != given.back())
      throw failure(errc::bad_request,
                    option->get_name() + ": is given twice, as " + given.front() + " and " + given.back() +
                      "; one is expected");
  }
}

/// With a configuration file, parses twice: the first pass accepts the command line alone, so an error of the second
/// comes from the file.
void parse_with_config(CLI::App& root, std::vector<std::string> arguments) {
  parse(root, arguments);
  const auto& chosen = chosen_of(root);
  refuse_empty_names(chosen);
  refuse_second_models(chosen);
  const auto* config = chosen.get_option_no_throw("--config");
  if (!config || config->count() == 0)
    return;
  const auto file = config->as<std::string>();
  const auto more = config_arguments(file, root, chosen);
  std::ptrdiff_t names = 0; // commands come first, flags after
  for (const auto* at = &chosen; at != &root; at = at->get_parent())
    ++names;
  for (auto to = arguments.begin() + names; const auto& argument : more)
    to = std::next(arguments.insert(to, argument.text));
  try {
    parse(root, arguments);
  } catch (const CLI::ParseError& e) {
    throw failure(errc::bad_request, refused_argument(file, more, e.what()));
  }
}

/// Prints the values that a flag may have, one a line: its choices, or this machine's models. Shells' completions call
/// it as `--values run --dtype`.
void print_values(CLI::App& root, const std::vector<std::string>& words) {
  auto* at = &root;
  for (std::size_t i = 1; i + 1 < words.size(); ++i) {
    const auto found = at->get_subcommands([&](const CLI::App* c) { return c->get_name() == words[i]; });
    if (found.empty())
      return;
    at = found.front();
  }
  auto* option = at->get_option_no_throw(words.back());
  if (!option)
    return;
  std::string lines = choices_of(*option);
  std::vector<std::string> ignored;
  if (option->get_type_name() == "PATH")
    for (const auto& model : list_local_models(ignored))
      lines += visible_name(model.name) + '\n';
  print(lines);
}

/// All commands, and what the arguments choose of them.
class command_tree {
public:
  command_tree(const std::vector<std::string>& arguments, more_benches benches);

  /// Throws CLI::Success for --help and --version, CLI::ParseError and failure.
  void read() { parse_with_config(root, with_help(arguments_, root)); }
  const command& chosen() const { return *std::ranges::find(commands_, &chosen_of(root), &command::options); }

  CLI::App root;

private:
  std::vector<std::string> arguments_;
  std::vector<command> commands_;
};

read_again read_once_more(const std::vector<std::string>& arguments) {
  const auto tree = std::make_shared<command_tree>(arguments, nullptr);
  try {
    tree->read();
  } catch (const CLI::ParseError& e) {
    throw failure(errc::bad_request, describe(tree->root, chosen_of(tree->root), e));
  }
  const auto& chosen = tree->chosen();
  return {tree, chosen.options, chosen.given};
}

command_tree::command_tree(const std::vector<std::string>& arguments, more_benches benches)
  : root(description, "troupe"), arguments_(arguments) {
  root.set_version_flag("--version", "troupe " TROUPE_VERSION, "Print the version");
  root.set_help_flag("-h,--help", "Print this help");
  root.set_help_all_flag("--help-all", "Print help on every flag");
  root.formatter(std::make_shared<help_formatter>(help_columns()));
  root.option_defaults()->take_last();
  root.require_subcommand(1);

  commands_ = {
    add_run(root),      add_chat(root),     add_serve(root, [arguments] { return read_once_more(arguments); }),
    add_score(root),    add_tokenize(root), add_detect(root),
    add_quantize(root), add_imatrix(root),  add_steer(root),
    add_models(root),   add_pull(root),     add_run_batch(root),
    add_replay(root)};
  auto* bench = root.add_subcommand("bench", "Measure a model: its speed and how well it predicts");
  bench->require_subcommand(1);
  commands_.push_back(add_bench_model(*bench));
  commands_.push_back(add_bench_machine(*bench));
  commands_.push_back(add_bench_perplexity(*bench));
  if (benches)
    std::ranges::move(benches(*bench), std::back_inserter(commands_));
  auto* guide = root.add_subcommand("guide",
                                    "Try guides: schemas, regular expressions and grammars that answers follow");
  guide->require_subcommand(1);
  commands_.push_back(add_guide_check(*guide));
  commands_.push_back(add_guide_bench(*guide));
  // Behind the commands below them, which inherit them otherwise.
  bench->footer("Examples:\n"
                "  troupe bench model --model synthetic:llama-1b\n"
                "  troupe bench machine\n"
                "  troupe bench perplexity --text book.txt\n"
                "`troupe bench COMMAND --help` shows the flags of a command.");
  guide->footer("Examples:\n"
                "  echo '{\"age\": 5}' | troupe guide check --json-schema person.json\n"
                "  troupe guide bench --schemas schemas.jsonl\n"
                "`troupe guide COMMAND --help` shows the flags of a command.");
  root.footer(footer);
}

/// Parses and runs. Throws output_failure if a command could not write to stdout.
int run_chosen(const std::vector<std::string>& arguments, more_benches benches) {
  command_tree tree(arguments, benches);
  auto& root = tree.root;
  if (!arguments.empty() && arguments.front() == "--values") {
    print_values(root, arguments);
    return 0;
  }
  try {
    tree.read();
  } catch (const CLI::Success& e) { // --help or --version
    std::ostringstream text;
    const int status = root.exit(e, text, std::cerr);
    print(text.str());
    return status;
  } catch (const CLI::ParseError& e) {
    return report(describe(root, chosen_of(root), e), usage_error);
  } catch (const failure& e) {
    return report(e.what(), usage_error);
  }

  try {
    check_idle_flags(chosen_of(root));
    check_output(chosen_of(root));
    return tree.chosen().run();
  } catch (const output_failure&) {
    throw;
  } catch (const usage_failure& e) {
    return report(e.what(), usage_error);
  } catch (const failure& e) {
    return report(e.what(), failed);
  } catch (const kernels::device_error& e) {
    return report(e.what(), failed);
  } catch (const std::filesystem::filesystem_error& e) {
    return report(e.path1().string() + ": " + e.code().message(), failed);
  } catch (const std::bad_alloc&) {
    return report(out_of_memory, failed);
  } catch (const std::system_error& e) {
    if (e.code() == std::errc::resource_unavailable_try_again)
      return report(no_thread, failed);
    return report(std::string("internal error: ") + e.what(), failed);
  } catch (const std::exception& e) {
    return report(std::string("internal error: ") + e.what(), failed);
  }
}

} // namespace

int run_command_line(const std::vector<std::string>& arguments, more_benches benches) {
  try {
    const int status = run_chosen(arguments, benches);
    flush_output();
    return status;
  } catch (const output_failure& e) {
    return e.is_broken_pipe() ? broken_pipe : report(e.what(), failed);
  }
}

} // namespace troupe::cli
