// An architecture of GGUF files: in which a family's models are written, and of whose files some are read. Its rows are
// in the families' files, as data: how its metadata differs from a llama's, how its tensors are stored. The conventions
// are llama.cpp's.
#pragma once

#include "runtime/checkpoint/gguf_keys.hpp"
#include "runtime/model/model_config.hpp"

#include <cstdint>
#include <string_view>

namespace troupe {

struct gguf_architecture {
  enum form : std::uint64_t {
    partial = 1ULL << 0U,           // heads may be rotated in part
    latent = 1ULL << 1U,            // attention is latent: keys of lengths mean other things
    without_attention = 1ULL << 2U, // in all layers
    wide_heads = 1ULL << 3U,        // of as many dimensions as latents
    untruncated = 1ULL << 4U,       // YaRN is without `truncate`, which no key says
    // Keys of their own:
    multiplies = 1ULL << 5U,    // multipliers, also those of 1
    says_interval = 1ULL << 6U, // which layers have experts
    says_parallel = 1ULL << 7U, // whether attention and MLP are side by side
    says_rotation = 1ULL << 8U, // whether layers rotate
    says_axes = 1ULL << 9U,     // of positions, which are the same for text
    lists_mlps = 1ULL << 10U,   // their widths layer by layer, and the norms' epsilon under both names
    // Tensors:
    pairs = 1ULL << 11U,           // q and k are stored for rotating neighbours,
    halves = 1ULL << 12U,          // and then are presented for rotating those half a head apart
    fused_qkv = 1ULL << 13U,       // written as one tensor; readers see what there is
    fused_up = 1ULL << 14U,        // likewise gate and up,
    fused_experts = 1ULL << 15U,   // those of experts,
    fused_rates = 1ULL << 16U,     // betas and decays of a recurrence, in turn
    values_in_turns = 1ULL << 17U, // of a recurrence: the first head of values of each one of keys, then the second
    named_by_place = 1ULL << 18U,  // the norm ahead of the MLP is called after its place behind attention
    two_norms = 1ULL << 19U,       // attention and the MLP beside it may have norms of their own
    bare_norm = 1ULL << 20U,       // the name of the MLP's norm has no `.weight`
    scaled = 1ULL << 21U,          // multipliers are part of the weights
    // Which models:
    with_experts = 1ULL << 22U, // those of a family that another architecture of it is not for
    encodes = 1ULL << 23U,      // likewise
    only_written = 1ULL << 24U, // files of this architecture are read as another family's
    // The model, where keys and tensors do not say it:
    parallel = 1ULL << 25U,
    may_norm_heads = 1ULL << 26U, // as tensors say
    learned_positions = 1ULL << 27U,
    scaled_embedding = 1ULL << 28U, // by the root of its width
    experts = 1ULL << 29U,
    routed = 1ULL << 30U, // experts of which more keys tell
    gelu = 1ULL << 31U,   // the activation; without one of these: silu
    gelu_tanh = 1ULL << 32U,
    relu = 1ULL << 33U,
    relu_squared = 1ULL << 34U,
  };

  bool is(form what) const { return (forms & what) != 0; }

  std::string_view name = {}; // `general.architecture`
  std::uint64_t forms = 0;    // all of `form` that hold

  /// Completes a description that has sizes, biases, positions and what `forms` say; null: nothing to add.
  void (*describe)(const architecture_keys& keys, model_config& model) = nullptr;

  std::string_view family = {}; // of the models in its files, once it is found
};

} // namespace troupe
