// Where a model comes from: a folder with a Hugging Face checkpoint, or `synthetic:SHAPE`, random weights in the shape
// of a real model. Opening one reads configurations and headers, no weights. Used by whoever loads a model.
#pragma once

#include "runtime/checkpoint.hpp"
#include "runtime/model_config.hpp"

#include <memory>
#include <string>
#include <string_view>

namespace troupe {

struct model_source {
  std::string name; // the folder's (its parent's where that is just "model"), or "synthetic:SHAPE"
  model_config config;
  generation_defaults generation;
  std::unique_ptr<const checkpoint> tensors;
};

/// Opens `model`, a path or "synthetic:SHAPE". Throws failure(not_found | bad_file | unsupported).
model_source open_model(const std::string& model);

/// Whether `model` names a synthetic one, which has no tokenizer and no files.
bool is_synthetic(std::string_view model);

/// The synthetic model of a `shape` (llama-135m, llama-1b or llama-8b): bf16 weights that are noise, the same at each
/// start, made when they are read. For measuring speed without a download.
model_source make_synthetic(std::string_view shape);

} // namespace troupe
