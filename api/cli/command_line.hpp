// The command line: parses it together with --config's file, runs the command and turns errors into one sentence and an
// exit status.
#pragma once

#include "api/cli/command.hpp"

#include <string>
#include <vector>

namespace troupe::cli {

/// Makes commands below `bench`.
using more_benches = std::vector<command> (*)(CLI::App& bench);

/// Runs `arguments`, which exclude the program's name. Returns the exit status: 0, 1 (failed), 2 (usage) or 130
/// (interrupted). Tools for makers add their `benches` to the program's commands.
int run_command_line(const std::vector<std::string>& arguments, more_benches benches = nullptr);

} // namespace troupe::cli
