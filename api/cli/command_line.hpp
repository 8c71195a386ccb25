// The whole command line: parses it, with a configuration file where one is named, runs the command and turns what goes
// wrong into one sentence and an exit status.
#pragma once

#include <string>
#include <vector>

namespace troupe::cli {

/// `arguments` without the program's name. Returns the exit status: 0, 1 (failed), 2 (usage) or 130 (interrupted).
int run_command_line(const std::vector<std::string>& arguments);

} // namespace troupe::cli
