// Sources of models: a folder with a Hugging Face checkpoint, a GGUF file, or `synthetic:SHAPE`, random weights in the
// shape of a real model. Opening a source reads configurations and headers, no weights.
#pragma once

#include "runtime/chat/chat_template.hpp"
#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/import/infill_tokens.hpp"
#include "runtime/import/ranker_config.hpp"
#include "runtime/model/decoder/mtp_layers.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/sampling/pooling.hpp"
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
  /// The folder's name (its parent's if that is just "model", the hub id in the hub's cache), the file's, or
  /// "synthetic:SHAPE".
  std::string name;
  model_config config;
  generation_defaults generation;
  std::unique_ptr<const checkpoint> tensors;
  /// Read the rest of the model when called; empty for synthetic models. They throw
  /// failure(not_found | bad_file | unsupported). A model may have no chat template; the argument, unless it is empty,
  /// is a file with one to take instead.
  std::function<std::shared_ptr<const tokenizer>()> load_tokenizer;
  std::function<std::optional<chat_template>(const std::string&)> load_chat_template;
  /// All files that weights depend on: those of `tensors`, and the configuration. Empty for synthetic models.
  std::vector<file_state> files = {};
  embedding_style embeddings = {};
  head_loader load_ranker = {};                       // of a model for classification; empty: it is none
  std::shared_ptr<const pooled_head> dense = nullptr; // layers behind the pooling; null: none
  std::vector<std::string> remarks = {};              // lines for the log
  named_infill infill = {};                           // of GGUF files
  std::optional<mtp_layers> mtp = {};                 // layers of multi-token prediction
};

/// Opens `model`: the path of a folder or of a GGUF file (recognised by its extension or its first bytes), the
/// "ORG/NAME" of a model in the hub's cache (hub_cache.hpp) or the name of another model of this machine
/// (local_models.hpp) if there is no such path, or "synthetic:SHAPE". A folder
/// without config.json but with one .gguf file stands for that file, or for the parts of one model. Throws
/// failure(not_found | bad_file | unsupported).
model_source open_model(const std::string& model);

/// The path that `model` stands for, or `model` itself if synthetic. Throws failure(not_found), saying how to get it.
std::string path_of_model(const std::string& model);

/// The GGUF file that the path `model` stands for, or nothing for other folders. Throws as `open_model`.
std::optional<std::filesystem::path> gguf_file_of(const std::string& model);

/// The tokenizer alone, from a folder that needs no other files or from a .gguf file, whatever its architecture and
/// tensors. Throws as `open_model`.
std::shared_ptr<const tokenizer> open_tokenizer(const std::string& model);

/// The chat template alone: that of the file `instead`, unless empty, or the model's; nothing if it has none. Throws as
/// `open_model`.
std::optional<chat_template> open_chat_template(const std::string& model, const std::string& instead);

/// ".gguf", ignoring case.
bool has_gguf_extension(const std::filesystem::path& file);

/// A model in a GGUF file, or in several of which it is the first (gguf_model.hpp). Throws failure(not_found | bad_file
/// | unsupported).
model_source open_gguf(const std::filesystem::path& file);

/// Whether `model` names a synthetic model. These have no tokenizer and no files.
bool is_synthetic(std::string_view model);

/// The synthetic model of a `shape` (llama-135m, llama-1b, ...): noise as bf16 weights, the same at each start,
/// generated when read. For measuring speed without a download. `opt-1b:90`: biases before ReLU are such that 90 % of
/// the activations are zero, as far as rows are normally distributed; without a number, 50 %.
model_source make_synthetic(std::string_view shape);

} // namespace troupe
