#include "api/cli/command_line.hpp"

#include "api/cli/command.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/config_file.hpp"
#include "api/cli/terminal/memory_errors.hpp"
#include "api/cli/terminal/standard_streams.hpp"
#include "kernels/ops.hpp"
#include "runtime/support/error.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <new>
#include <sstream>
#include <system_error>

namespace troupe::cli {

namespace {

constexpr auto description = "Troupe runs large language models on this machine:\n"
                             "from a prompt, as a chat, or as a server that speaks OpenAI's protocol.";

constexpr auto footer = "Examples:\n"
                        "  troupe run \"Tell me a story about a fox\"\n"
                        "  troupe chat --model ~/models/Qwen3-0.6B\n"
                        "  troupe serve --port 9000 --config configs/server.toml\n"
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

/// CLI11's message, or a clearer one for missing and unknown commands and flags.
std::string describe(const CLI::App& chosen, const CLI::ParseError& e) {
  const auto rest = chosen.remaining();
  const bool wants_command = chosen.get_require_subcommand_min() > 0;
  if (rest.empty())
    return wants_command ? "a command is missing" : e.what();
  const auto flag = std::ranges::find_if(rest, [](const std::string& a) { return a.starts_with('-'); });
  if (flag != rest.end())
    return "there is no flag " + *flag;
  return (wants_command ? "there is no command `" : "unexpected argument `") + rest.front() + "`";
}

void parse(CLI::App& root, std::vector<std::string> arguments) {
  std::ranges::reverse(arguments); // CLI11 parses from the back
  root.parse(arguments);
}

/// With a configuration file, parses twice: the first pass accepts the command line alone, so an error of the second
/// comes from the file.
void parse_with_config(CLI::App& root, std::vector<std::string> arguments) {
  parse(root, arguments);
  const auto& chosen = chosen_of(root);
  const auto* config = chosen.get_option_no_throw("--config");
  if (!config || config->count() == 0)
    return;
  const auto file = config->as<std::string>();
  const auto more = config_arguments(file, root, chosen);
  std::ptrdiff_t names = 0; // commands come first, flags after
  for (const auto* at = &chosen; at != &root; at = at->get_parent())
    ++names;
  arguments.insert(arguments.begin() + names, more.begin(), more.end());
  try {
    parse(root, arguments);
  } catch (const CLI::ParseError& e) {
    throw failure(errc::bad_request, file + ": " + e.what());
  }
}

/// Parses and runs. Throws output_failure if a command could not write to stdout.
int run_chosen(const std::vector<std::string>& arguments) {
  CLI::App root(description, "troupe");
  root.set_version_flag("--version", "troupe " TROUPE_VERSION, "Print the version");
  root.set_help_flag("-h,--help", "Print this help");
  root.get_formatter()->column_width(36);
  root.option_defaults()->take_last();
  root.require_subcommand(1);
  root.footer(footer);

  std::vector commands{add_run(root),      add_chat(root),   add_serve(root),    add_score(root),
                       add_tokenize(root), add_detect(root), add_quantize(root), add_steer(root)};
  auto* bench = root.add_subcommand("bench", "Measure a model: its speed, how well it predicts");
  bench->require_subcommand(1);
  commands.push_back(add_bench_model(*bench));
  commands.push_back(add_bench_machine(*bench));
  commands.push_back(add_bench_speculate(*bench));
  commands.push_back(add_bench_perplexity(*bench));
  auto* guide = root.add_subcommand("guide",
                                    "Try guides: schemas, regular expressions and grammars that answers follow");
  guide->require_subcommand(1);
  commands.push_back(add_guide_check(*guide));
  commands.push_back(add_guide_bench(*guide));

  try {
    parse_with_config(root, arguments);
  } catch (const CLI::Success& e) { // --help or --version
    std::ostringstream text;
    const int status = root.exit(e, text, std::cerr);
    print(text.str());
    return status;
  } catch (const CLI::ParseError& e) {
    const auto& chosen = chosen_of(root);
    return report(describe(chosen, e) + " (`" + path_of(root, chosen) + " --help` shows how)", usage_error);
  } catch (const failure& e) {
    return report(e.what(), usage_error);
  }

  const auto& chosen = chosen_of(root);
  try {
    return std::ranges::find(commands, &chosen, &command::options)->run();
  } catch (const output_failure&) {
    throw;
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

int run_command_line(const std::vector<std::string>& arguments) {
  try {
    const int status = run_chosen(arguments);
    flush_output();
    return status;
  } catch (const output_failure& e) {
    return e.is_broken_pipe() ? broken_pipe : report(e.what(), failed);
  }
}

} // namespace troupe::cli
