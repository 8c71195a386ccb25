// Flags that would have no effect as the others are. The help says which need others, and is the rule.
#pragma once

namespace CLI {
class App;
}

namespace troupe::cli {

/// Throws usage_failure if a flag is given whose help begins with "With --a or --b:" and none of these is on, or with
/// "Without --a:" and that is on. What a checkpoint's own sampling may turn on counts as on.
void check_idle_flags(const CLI::App& command);

} // namespace troupe::cli
