// GGUF files in a form of Troupe's own: for what llama.cpp's keys and names cannot say of a model. They hold its
// config.json as it is, and its tensors as they are presented (runtime/model/tensor_names). The architecture has a name
// of its own, so that other programs refuse such files instead of computing something else.
#pragma once

#include "runtime/checkpoint/gguf_file.hpp"
#include "runtime/checkpoint/gguf_writer.hpp"
#include "runtime/import/gguf/gguf_layout.hpp"
#include "runtime/import/model_source.hpp"

#include <filesystem>
#include <string_view>
#include <vector>

namespace troupe {

inline constexpr std::string_view own_architecture = "troupe";

bool is_own_form(const gguf_file& file);

/// Throws failure(bad_file | unsupported) naming the file and the key.
model_config parse_own_config(const gguf_file& file);

/// Adds the metadata of a folder's model, without its tokenizer.
void describe_own(gguf_writer& to, const std::filesystem::path& folder, const model_config& config);

/// All tensors of a model, those of multi-token prediction included.
std::vector<laid_out_tensor> own_layout(const model_source& source);

} // namespace troupe
