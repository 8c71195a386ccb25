// Checks that a command does not write to a file that it reads. command_line.cpp checks all commands before they run.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace troupe::cli {

/// Throws usage_failure if `out`, which is to be written, is one of the files that the flags and arguments of `command`
/// name, or of those of their models: by whatever name, also through links.
void check_output(const CLI::App& command, const std::string& out);

/// Checks the file that `--out` names in the same way, if the command has such a flag and it was given.
void check_output(const CLI::App& command);

} // namespace troupe::cli
