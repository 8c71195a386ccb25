// Whether a GGUF file says what the model is that it was made of.
#pragma once

#include "runtime/model/model_config.hpp"

#include <filesystem>
#include <string>

namespace troupe {

/// Removes and refuses (failure(unsupported)) a file that says something else: not all that configurations say has a
/// key. `model`: for the message.
void check_written(const std::filesystem::path& file, const model_config& made_of, const std::string& model);

} // namespace troupe
