// Says what a folder or a file is that somebody took for a model, and what to do about it. Used by whoever opens a model.
#pragma once

#include <filesystem>
#include <string>

namespace troupe {

/// What a folder lacks that was to hold a checkpoint.
enum class missing { configuration, weights, tokenizer };

/// Throws failure(not_found | unsupported) naming the folder.
[[noreturn]] void refuse_folder(const std::filesystem::path& folder, missing what);

/// A regular file that is no GGUF file. Throws failure(unsupported | bad_file) naming it.
[[noreturn]] void refuse_file(const std::filesystem::path& file);

} // namespace troupe
