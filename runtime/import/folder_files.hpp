// Which files of a folder, or of a repository of the hub, a model is read from: one list for those who read and those
// who fetch. Plain functions on names and untrusted text.
#pragma once

#include "runtime/support/json/json_reader.hpp"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Whether a model is read from the file, by its path within the folder, or it has the terms under which the model may
/// be used. Weights are not among these, nor is what `module_files` has.
bool is_folder_file(std::string_view path);

/// Whether the file holds weights that are read; `listed`: the folder has a list of several such files.
bool is_folder_weights(std::string_view path, bool listed);

/// The list of a sentence encoder's modules.
inline constexpr std::string_view modules_file = "modules.json";

struct sentence_module {
  std::string name;             // "Pooling"
  std::filesystem::path folder; // within the model's; empty: the model's own
};

/// Throws failure(bad_file) naming what is wrong: folders must be beside the list.
std::vector<sentence_module> read_modules(const json::document& list);

/// The files of a model's further modules, by their paths within its folder; not all need be there.
std::vector<std::string> module_files(const json::document& list);

} // namespace troupe
