// The architectures of GGUF files: how each one's metadata differs from a llama's, and how its tensors are stored.
// Their conventions are llama.cpp's.
#pragma once

#include "runtime/checkpoint/arranged_checkpoint.hpp"
#include "runtime/import/gguf_keys.hpp"
#include "runtime/model/model_config.hpp"

#include <string_view>

namespace troupe {

struct gguf_architecture {
  std::string_view name;   // `general.architecture`
  std::string_view family; // of the model_config
  bool layer_norm = false; // `layer_norm_epsilon` instead of `layer_norm_rms_epsilon`
  bool partial = false;    // heads may be rotated in part
  bool latent = false;     // attention is latent: keys of lengths mean other things
  bool attends = true;     // some layers do
  bool pairs = false;      // q and k are stored for rotating neighbours, which make_gguf_checkpoint does not undo

  /// Completes a description that has sizes, biases and positions; null: nothing to add.
  void (*describe)(const architecture_keys& keys, model_config& model) = nullptr;
};

/// Throws failure(unsupported) naming the key.
const gguf_architecture& gguf_architecture_of(const gguf_file& file);

/// The tensors of a file, under Hugging Face's names where there is one (make_gguf_checkpoint), as the decoder wants
/// them: fused matrices, experts, sinks, rows in the order in which kernels rotate.
std::unique_ptr<const checkpoint> arrange_gguf(std::unique_ptr<const checkpoint> stored, const model_config& model);

} // namespace troupe
