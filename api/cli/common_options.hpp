// Flags that several commands share, in groups as `--help` shows them.
#pragma once

#include "api/embed/engine.hpp"

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace troupe::cli {

inline constexpr auto model_group = "Model", sampling_group = "Sampling", limits_group = "Limits",
                      server_group = "Server", output_group = "Output";

/// `--config`. Used by every command.
void add_common_options(CLI::App& command);

/// `--model`, which defaults to the bundled model if there is one.
void add_model_option(CLI::App& command, std::string& model);

/// `--threads`.
void add_threads_option(CLI::App& command, int& threads);

/// `--chat-template`.
void add_chat_template_option(CLI::App& command, engine_options& options);

/// `--no-wrap`, for commands that print answers.
void add_wrap_option(CLI::App& command, bool& wrap);

/// All of compute_options: `--dtype`, `--quantize`, `--kv-dtype`, `--device`, ...
void add_compute_options(CLI::App& command, compute_options& options);

/// All of engine_options, `--model` included: once, or several times into `models`.
void add_engine_options(CLI::App& command, engine_options& options, std::vector<std::string>* models = nullptr);

/// The folder of the bundled model: beside the program's build folder, in the installation, or below the working
/// directory. Empty if not found.
std::string bundled_model();

/// server.toml of the examples of configuration files, as it is to be typed: below the sources, or of the installation.
std::string example_configuration();

/// Takes what is bundled beside the bundled model for it, unless another one or none was asked for.
engine_options with_bundled_second(engine_options options);

/// Throws failure(not_found) if no model was given and none is bundled.
void require_model(const std::string& model);

/// Throws failure(unsupported) if the model has no chat template and none was given, and as open_chat_template. Reads
/// no weights.
void require_chat_template(const engine_options& options);

} // namespace troupe::cli
