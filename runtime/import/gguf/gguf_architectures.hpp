// The architectures of GGUF files, for reading and writing: how each one's metadata differs from a llama's, and how its
// tensors are stored. Their conventions are llama.cpp's.
#pragma once

#include "runtime/checkpoint/arranged_checkpoint.hpp"
#include "runtime/import/gguf/gguf_keys.hpp"
#include "runtime/model/model_config.hpp"

#include <cstdint>
#include <string_view>

namespace troupe {

struct gguf_architecture {
  enum form : std::uint64_t {
    layer_norm = 1U << 0U,        // `layer_norm_epsilon` instead of `layer_norm_rms_epsilon`
    partial = 1U << 1U,           // heads may be rotated in part
    latent = 1U << 2U,            // attention is latent: keys of lengths mean other things
    without_attention = 1U << 3U, // in all layers
    wide_heads = 1U << 4U,        // of as many dimensions as latents
    untruncated = 1U << 5U,       // YaRN is without `truncate`, which no key says
    // Keys of their own:
    multiplies = 1U << 6U,    // multipliers, also those of 1
    says_interval = 1U << 7U, // which layers have experts
    says_parallel = 1U << 8U, // whether attention and MLP are side by side
    says_rotation = 1U << 9U, // whether layers rotate
    says_axes = 1U << 10U,    // of positions, which are the same for text
    lists_mlps = 1U << 11U,   // their widths layer by layer, and the norms' epsilon under both names
    // Tensors:
    pairs = 1U << 12U,           // q and k are stored for rotating neighbours,
    halves = 1U << 13U,          // and then are presented for rotating those half a head apart
    fused_qkv = 1U << 14U,       // written as one tensor; readers see what there is
    fused_up = 1U << 15U,        // likewise gate and up,
    fused_experts = 1U << 16U,   // those of experts,
    fused_rates = 1U << 17U,     // betas and decays of a recurrence, in turn
    values_in_turns = 1U << 18U, // of a recurrence: the first head of values of each one of keys, then the second
    named_by_place = 1U << 19U,  // the norm ahead of the MLP is called after its place behind attention
    two_norms = 1U << 20U,       // attention and an MLP beside it may have norms of their own
    bare_norm = 1U << 21U,       // the name of the MLP's norm has no `.weight`
    scaled = 1U << 22U,          // multipliers are part of the weights
    // Written for some models of a family:
    with_experts = 1U << 23U,
    encodes = 1U << 24U,
  };

  bool is(form what) const { return (forms & what) != 0; }

  std::string_view name;   // `general.architecture`
  std::string_view family; // of the model_config
  std::uint64_t forms = 0; // all of `form` that hold

  /// Completes a description that has sizes, biases and positions; null: nothing to add.
  void (*describe)(const architecture_keys& keys, model_config& model) = nullptr;
};

/// Of a file that is read. Throws failure(unsupported) naming the key.
const gguf_architecture& gguf_architecture_of(const gguf_file& file);

/// In which models of this family are written; null if there is none.
const gguf_architecture* gguf_architecture_of_family(std::string_view family);

/// Its name for a model; empty if GGUF has none, or it is not written.
std::string_view gguf_architecture_for(const model_config& model);

/// The tensors of a file, under Hugging Face's names where there is one (make_gguf_checkpoint), as the decoder wants
/// them: fused matrices, experts, sinks, rows in the order in which kernels rotate.
std::unique_ptr<const checkpoint> arrange_gguf(std::unique_ptr<const checkpoint> stored, const model_config& model);

} // namespace troupe
