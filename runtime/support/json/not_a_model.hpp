// Explains why a folder or file is not a model, and what to do about it. Used by the loaders.
#pragma once

#include <filesystem>
#include <string>

namespace troupe {

/// The part that a folder lacks to be a checkpoint.
enum class missing { configuration, weights, tokenizer };

/// Throws failure(not_found | unsupported) naming the folder.
[[noreturn]] void refuse_folder(const std::filesystem::path& folder, missing what);

/// Refuses a regular file other than GGUF. Throws failure(unsupported | bad_file) naming it.
[[noreturn]] void refuse_file(const std::filesystem::path& file);

} // namespace troupe
