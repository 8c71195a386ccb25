// Finds models in the cache of Hugging Face's programs (`hf download`, transformers) by their hub id. Reads the
// environment and folders, never the network.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// Whether `model` has the form of a hub id: "ORG/NAME".
bool is_hub_id(std::string_view model);

/// $HF_HUB_CACHE, else $HF_HOME/hub, else huggingface/hub in $XDG_CACHE_HOME or ~/.cache.
std::filesystem::path hub_cache();

/// The folder of the version of `id` fetched last, which refs/main names; nothing if there is none. Throws
/// failure(bad_file) if that file cannot be read.
std::optional<std::filesystem::path> find_in_hub_cache(std::string_view id);

/// The version fetched last of a repository's folder in a cache (models--ORG--NAME). As find_in_hub_cache.
std::optional<std::filesystem::path> version_in_hub_cache(const std::filesystem::path& repository);

/// The name of the folder of `id` in a cache: "models--ORG--NAME".
std::string hub_repository_of(std::string_view id);

/// The reverse: "ORG/NAME", or "NAME" of one that has no ORG; nothing for other folders.
std::optional<std::string> hub_id_of_repository(std::string_view folder);

/// The id of the model in `folder`, if that is a version in a cache (.../models--ORG--NAME/snapshots/VERSION).
std::optional<std::string> hub_id_of(const std::filesystem::path& folder);

} // namespace troupe
