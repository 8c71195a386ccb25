// The command line: parses it together with --config's file, runs the command and turns errors into one sentence and an
// exit status.
#pragma once

#include <string>
#include <vector>

namespace troupe::cli {

/// Runs `arguments`, which exclude the program's name. Returns the exit status: 0, 1 (failed), 2 (usage) or 130
/// (interrupted).
int run_command_line(const std::vector<std::string>& arguments);

} // namespace troupe::cli
