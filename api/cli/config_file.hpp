// Configuration files: the long flags of a command as keys, `threads = 2`, at the top for all commands that have such a
// flag, or in a section for one: `[serve]`, `[bench.model]`. A subset of TOML: no tables within values, no values over
// several lines, no escapes in strings.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace troupe::cli {

/// The arguments that `file` stands for: of its keys those that `chosen` has a flag for and that the command line has
/// not given already. Every key must be a flag of some command below `root`, every section a command. Throws
/// failure(not_found | bad_request) naming the file and the key.
std::vector<std::string> config_arguments(const std::string& file, const CLI::App& root, const CLI::App& chosen);

} // namespace troupe::cli
