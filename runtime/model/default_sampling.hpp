// The sampling of requests that do not specify it: as their checkpoint says. If the checkpoint names neither a
// temperature nor a filter, it is what users of the interface expect from other programs. Pure functions.
#pragma once

#include "runtime/model/model_config.hpp"
#include "runtime/sampling/sampling_params.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// What the users of an interface know: those of OpenAI's API the model's own distribution, those of llama.cpp and
/// Ollama one without its tail (temperature 0.8, top_k 40, top_p 0.95, min_p 0.05), without which small models ramble.
enum class sampling_convention : std::uint8_t { openai, local };

/// Whether a parameter of the table of sampling is a temperature or a filter, which together decide what is drawn.
bool decides_draws(std::string_view parameter);

sampling_params default_sampling(const generation_defaults& of, sampling_convention users);

/// Whence these values are: the file that names them, or "defaults, as the model names none".
std::string source_of_sampling(const generation_defaults& of);

/// Names and values, as JSON has them, of all parameters that a checkpoint can name and that differ from having no
/// effect; always the temperature.
std::vector<std::pair<std::string, std::string>> named_sampling(const sampling_params& of);

/// "temperature 0.7, top_p 0.95"
std::string told_sampling(const sampling_params& of);

} // namespace troupe
