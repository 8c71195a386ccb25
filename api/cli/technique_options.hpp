// The flags of techniques, made from their tables (runtime/techniques/technique.hpp).
#pragma once

#include "runtime/techniques/technique.hpp"

namespace CLI {
class App;
}

namespace troupe::cli {

/// The flags of all techniques that are set in `place`, whose texts go to `to`.
void add_technique_options(CLI::App& command, flag_values& to, technique_option::place place, const char* group);

} // namespace troupe::cli
