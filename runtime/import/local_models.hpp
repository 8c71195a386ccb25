// The models on this machine: below ~/models, and in the caches of Hugging Face's programs, Ollama and llama.cpp.
// Looks at names only, opens no model, and bounds what it looks at: folders may be hostile, slow or not readable.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

struct local_model {
  std::string name;           // that `--model` takes: "Qwen3-0.6B", "ORG/NAME", "ORG/NAME:Q4_K_M", "llama3.2:1b"
  std::filesystem::path path; // of the folder or the GGUF file
  std::string source;         // "~/models", "Hugging Face", "Ollama", "llama.cpp"
  std::uint64_t bytes = 0;    // of the files of weights
};

struct model_place {
  std::string source;
  std::filesystem::path folder;
};

/// Where models are looked for, whether there is such a folder or not, in the order in which names count: $HOME/models;
/// hub_cache(); $OLLAMA_MODELS, else ~/.ollama/models and that of Ollama's service; $LLAMA_CACHE, else llama.cpp in
/// $XDG_CACHE_HOME or ~/.cache.
std::vector<model_place> model_places();

/// All models, those of one place by name. A name that an earlier one has is replaced by the path. `remarks` receives
/// a sentence for each folder that cannot be read, and for each place that holds more than `most_entries` files.
inline constexpr std::size_t most_entries = 100'000;
std::vector<local_model> list_local_models(std::vector<std::string>& remarks, std::size_t most = most_entries);

/// All below a folder, as those below ~/models: by their names there. `remarks` as above.
std::vector<local_model> models_below(const std::filesystem::path& folder, std::vector<std::string>& remarks);

/// The model that has this name; if none has, one that has it apart from ASCII capitals or Ollama's ":latest"; else the
/// only one whose file, or last part of the name, is called so or begins with these whole words: with or without
/// ".gguf", `smollm2` is "x/SmolLM2-135M-Q4_1.gguf". Throws failure(not_found) naming several.
std::optional<local_model> find_local_model(std::string_view name);

/// ": did you mean ...?" about a name that no model has; nothing if none is like it.
std::string similar_models(std::string_view name);

/// What the names and sizes of a model's files tell of it.
struct model_files {
  std::uint64_t bytes = 0; // of the files of weights
  std::string format = {}; // of a GGUF file's weights, "Q4_K_M"; empty: its name does not say
};

/// Of the folder or GGUF file `model`; nothing of a path where there is none.
model_files files_of_model(const std::filesystem::path& model);

/// The GGUF models in `folder`, a repository's files, named `name`:FORMAT; empty if the folder is itself a checkpoint.
std::vector<local_model> gguf_models_in(const std::filesystem::path& folder, const std::string& name);

} // namespace troupe
