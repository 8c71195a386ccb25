// The architectures of GGUF files, for reading and writing: how each one's metadata differs from a llama's, and how its
// tensors are stored. Their conventions are llama.cpp's.
#pragma once

#include "runtime/checkpoint/arranged_checkpoint.hpp"
#include "runtime/import/gguf/gguf_keys.hpp"
#include "runtime/model/model_config.hpp"

#include <string_view>

namespace troupe {

struct gguf_architecture {
  enum form : unsigned {
    layer_norm = 1,        // `layer_norm_epsilon` instead of `layer_norm_rms_epsilon`
    partial = 2,           // heads may be rotated in part
    latent = 4,            // attention is latent: keys of lengths mean other things
    without_attention = 8, // in all layers
    pairs = 16,            // q and k are stored for rotating neighbours
    fused_qkv = 32,        // written as one tensor; readers see what there is
    fused_up = 64,         // likewise gate and up
    named_by_place = 128,  // the norm ahead of the MLP is called after its place behind attention
    wide_heads = 256,      // of as many dimensions as latents
    untruncated = 512,     // YaRN is without `truncate`, which no key says
    multiplies = 1024,     // multipliers have keys of their own, also those of 1
    says_interval = 2048,  // a key says which layers have experts
    says_parallel = 4096,  // a key says whether attention and MLP are side by side
    lists_mlps = 8192,     // their widths layer by layer, and the norms' epsilon under both names
  };

  bool is(form what) const { return (forms & what) != 0; }

  std::string_view name;   // `general.architecture`
  std::string_view family; // of the model_config
  unsigned forms = 0;      // all of `form` that hold

  /// Completes a description that has sizes, biases and positions; null: nothing to add.
  void (*describe)(const architecture_keys& keys, model_config& model) = nullptr;
};

/// Of a file that is read. Throws failure(unsupported) naming the key.
const gguf_architecture& gguf_architecture_of(const gguf_file& file);

/// In which models of this family are written; null if there is none.
const gguf_architecture* gguf_architecture_of_family(std::string_view family);

/// The tensors of a file, under Hugging Face's names where there is one (make_gguf_checkpoint), as the decoder wants
/// them: fused matrices, experts, sinks, rows in the order in which kernels rotate.
std::unique_ptr<const checkpoint> arrange_gguf(std::unique_ptr<const checkpoint> stored, const model_config& model);

} // namespace troupe
