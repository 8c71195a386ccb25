// The families of models: how each one's config.json becomes the description of a decoder (model_config), and how its
// checkpoints store the tensors. One file per family or lineage in this folder; `family.cpp` lists them.
#pragma once

#include "runtime/checkpoint/arranged_checkpoint.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/support/json/json_reader.hpp"

#include <span>
#include <string_view>

namespace troupe {

struct family {
  std::string_view name; // `model_type`

  /// Reads sizes, positions and all that differs from a llama. `model` has its family's name.
  void (*read)(const json::reader& config, model_config& model);

  /// Adds the tensors whose names or layouts differ from tensor_names'; null: none do. Of `stored`, only the headers.
  void (*arrange)(const model_config& model, const checkpoint& stored, arrangement& to) = nullptr;
};

/// All of them, in the order of messages.
std::span<const family> all_families();

/// Throws failure(bad_file | unsupported) if `model_type` is missing or unknown.
const family& family_of(const json::reader& config);

/// Presents a folder's tensors as the decoder wants them: by its family's names, with q and k in the order in which
/// kernels rotate. Throws as `arrange`.
std::unique_ptr<const checkpoint> arrange_tensors(std::unique_ptr<const checkpoint> stored, const model_config& model);

/// Adds the order of rows that rotating parts of heads, or neighbours, asks for to `to`.
void arrange_rotation(const model_config& model, arrangement& to);

} // namespace troupe
