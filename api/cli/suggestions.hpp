// Maps what users of other programs type to the name it has here. Pure functions.
#pragma once

#include <string_view>

namespace troupe::cli {

/// What does here what a command of Ollama does that there is not here: a sentence; empty if it is unknown.
std::string_view instead_of(std::string_view command);

/// What a flag or command of another program (llama.cpp, Ollama, vLLM, transformers) is called here; empty if unknown.
/// Names are without dashes in front.
std::string_view name_here(std::string_view elsewhere);

} // namespace troupe::cli
