// Where a model comes from: a folder with a Hugging Face checkpoint, a GGUF file, or `synthetic:SHAPE`, random weights in
// the shape of a real model. Opening one reads configurations and headers, no weights. Used by whoever loads a model.
#pragma once

#include "runtime/chat/chat_template.hpp"
#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

struct model_source {
  // Of the folder (its parent's where that is just "model", the hub's id in a cache of the hub), of the file, or
  // "synthetic:SHAPE".
  std::string name;
  model_config config;
  generation_defaults generation;
  std::unique_ptr<const checkpoint> tensors;
  /// Read the rest of a model when called. Empty where there is no tokenizer: a synthetic model. They throw
  /// failure(not_found | bad_file | unsupported); the template may be nothing.
  std::function<std::shared_ptr<const tokenizer>()> load_tokenizer;
  std::function<std::optional<chat_template>()> load_chat_template;
  /// All that weights follow from: those of `tensors`, and the configuration. None: a synthetic model.
  std::vector<file_state> files = {};
};

/// Opens `model`: the path of a folder or of a GGUF file, known by its extension or its first bytes, "ORG/NAME" of a model
/// in the hub's cache (hub_cache.hpp) where there is no such path, or "synthetic:SHAPE". A folder without config.json that
/// holds one .gguf file stands for that. Throws failure(not_found | bad_file | unsupported).
model_source open_model(const std::string& model);

/// The path that `model` stands for, or itself where it is synthetic. Throws failure(not_found), saying how to get it.
std::string path_of_model(const std::string& model);

/// The GGUF file that the path `model` stands for, or nothing where it is a folder of another kind. Throws as `open_model`.
std::optional<std::filesystem::path> gguf_file_of(const std::string& model);

/// The tokenizer alone, of a folder that need not hold more than that, or of a .gguf file. Throws as `open_model`.
std::shared_ptr<const tokenizer> open_tokenizer(const std::string& model);

/// ".gguf", in letters of whatever case.
bool has_gguf_extension(const std::filesystem::path& file);

/// A model in one GGUF file: runtime/gguf_model.hpp. Throws failure(not_found | bad_file | unsupported).
model_source open_gguf(const std::filesystem::path& file);

/// Whether `model` names a synthetic one, which has no tokenizer and no files.
bool is_synthetic(std::string_view model);

/// The synthetic model of a `shape` (llama-135m, llama-1b or llama-8b): bf16 weights that are noise, the same at each
/// start, made when they are read. For measuring speed without a download.
model_source make_synthetic(std::string_view shape);

} // namespace troupe
