// Models that Hugging Face's programs (`hf download`, transformers) have left in their cache, by the id that the hub
// knows them by. Reads the environment and folders, never the network. Used by whoever opens a model.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// Whether `model` is spelt as an id of the hub: "ORG/NAME".
bool is_hub_id(std::string_view model);

/// $HF_HUB_CACHE, else $HF_HOME/hub, else huggingface/hub in $XDG_CACHE_HOME or ~/.cache.
std::filesystem::path hub_cache();

/// The folder of the latest version of `id` that was fetched, as refs/main names it; nothing where there is none.
/// Throws failure(bad_file) where that file cannot be read.
std::optional<std::filesystem::path> find_in_hub_cache(std::string_view id);

/// The id of the model in `folder`, where that is a version in a cache (.../models--ORG--NAME/snapshots/VERSION).
std::optional<std::string> hub_id_of(const std::filesystem::path& folder);

} // namespace troupe
