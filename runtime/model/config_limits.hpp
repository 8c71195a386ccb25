// Upper limits of a model's configuration, for all file formats. Far above any real model, and low enough that products
// of two fit an int64, and those that the decoder needs fit an int.
#pragma once

namespace troupe::config_limits {

inline constexpr int max_hidden = 1 << 20, max_ffn = 1 << 22, max_vocab = 1 << 24, max_layers = 1 << 12,
                     max_heads = 1 << 12, max_head_dim = 256, max_latent_dim = 640, max_positions = 1 << 28,
                     max_experts = 1 << 12,
                     max_layer_experts = 1 << 16,             // of all layers together
  max_state_dim = 1 << 10, max_state = 1 << 26, max_taps = 8; // of recurrent layers

} // namespace troupe::config_limits
