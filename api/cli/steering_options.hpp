// The flags of adapters, and of steering vectors: `--steer` names the files that an engine has, `--steering` what a
// request adds.
#pragma once

#include "runtime/engine/engine_options.hpp"
#include "runtime/steering/steering.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace troupe::cli {

/// The parts of NAME=FILE. Throws failure(bad_request).
steering_source parse_steering_source(std::string_view text);

/// The parts of NAME, NAME=STRENGTH or NAME=STRENGTH@FIRST-LAST. Throws failure(bad_request).
steering_choice parse_steering_choice(std::string_view text);

/// `--steer`
void add_steer_option(CLI::App& command, std::vector<steering_source>& sources);

/// `--lora` and `--lora-endpoints`
void add_lora_options(CLI::App& command, engine_options& options);

/// `--steering`
void add_steering_option(CLI::App& command, std::vector<steering_choice>& choices);

} // namespace troupe::cli
