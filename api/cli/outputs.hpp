// What a command writes is never one of the files that it reads. Checked for all commands alike, before they run.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace troupe::cli {

/// Throws usage_failure if `out`, which is to be written, is one of the files that the flags and arguments of `command`
/// name, or of those of their models: by whatever name, also through links.
void check_output(const CLI::App& command, const std::string& out);

/// The same for the file that `--out` names, if the command has such a flag and it was given.
void check_output(const CLI::App& command);

} // namespace troupe::cli
