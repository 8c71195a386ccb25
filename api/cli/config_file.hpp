// Configuration files: TOML whose keys are the long flags of a command, such as `threads = 2`. Keys at the top apply to
// every command that has the flag, keys in a section ([serve], [bench.model]) to one command.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace troupe::cli {

struct config_argument {
  std::string text; // "--threads=2"
  std::size_t line = 0;
};

/// The arguments that `file` adds to the command line: its keys that are flags of `chosen` and that the command line
/// has not set. Every key must be a flag of some command below `root` and every section a command. Throws
/// failure(not_found | bad_file | bad_request) naming the file, the line and the key.
std::vector<config_argument> config_arguments(const std::string& file, const CLI::App& root, const CLI::App& chosen);

/// One [[model]] of a file, which is one of several models that `troupe serve` serves.
struct config_table {
  struct setting {
    std::string key;
    std::vector<std::string> values;
    std::size_t line = 0;
  };
  std::size_t line = 0;
  std::vector<setting> settings; // in the order of the file
};

/// The model tables of `file`, [[serve.model]] as well. Throws as above.
std::vector<config_table> model_tables(const std::string& file);

/// Whether a key stands for a flag of `command`.
bool is_flag_of(const CLI::App& command, const std::string& key);

/// What the parser said of these arguments, behind the file and, if it named a flag of theirs, the line.
std::string refused_argument(const std::string& file, const std::vector<config_argument>& arguments,
                             std::string_view said);

} // namespace troupe::cli
