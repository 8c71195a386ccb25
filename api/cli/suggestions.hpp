// "Did you mean": what a user who typed an unknown command or flag most likely wanted. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace troupe::cli {

/// The name of `names` that differs least from `typed`, by inserted, missing, wrong and swapped characters; empty if
/// all differ by more than a third.
std::string nearest(std::string_view typed, const std::vector<std::string>& names);

/// What a flag or command of another program (llama.cpp, Ollama, vLLM, transformers) is called here; empty if unknown.
/// Names are without dashes in front.
std::string_view name_here(std::string_view elsewhere);

} // namespace troupe::cli
