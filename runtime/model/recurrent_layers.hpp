// Names and shapes of the tensors of recurrent layers, as the decoder wants them. Families present theirs under these
// names: "model.layers.N.recurrent.", then as below.
#pragma once

#include "kernels/recurrent.hpp"
#include "runtime/model/tensor_names.hpp"

#include <vector>

namespace troupe {

class recurrent_tensors {
public:
  recurrent_tensors(const model_config& config, int layer);

  /// Products of what the layer reads, stacked: in_proj; or gate_proj, conv_proj (or q_proj, k_proj and v_proj), beta_proj and rate_proj, or those of
  /// them that there are; or (channel_delta) q_proj, k_proj, v_proj, beta_proj, rate_down and gate_down (without a rank: rate_proj, gate_proj); or (selective)
  /// conv_proj and gate_proj.
  std::vector<wanted_tensor> in() const;
  wanted_tensor rate_up() const; // channel_delta: [heads * key_dim, rank]; selective: [inner, rank]
  wanted_tensor gate_up() const; // channel_delta: [inner, rank]
  wanted_tensor parts() const;   // selective, of the convolved row: [rank + 2 key_dim, inner]
  wanted_tensor out() const;     // [hidden, inner]

  std::vector<wanted_tensor> convolution() const;      // [channels, taps], of neighbouring channels
  std::vector<wanted_tensor> convolution_bias() const; // [channels]; or none
  std::vector<wanted_tensor> in_bias() const;          // of the rows of `in`; or none
  std::vector<wanted_tensor> out_bias() const;         // [hidden]; or none
  wanted_tensor decay() const;                         // [heads]; selective: [inner, key_dim]
  wanted_tensor dt_bias() const;                       // [heads], or [heads * key_dim], or [inner]
  wanted_tensor skip() const;                          // [heads], or [inner]
  wanted_tensor norm() const;                          // [inner], or of one head
  std::vector<wanted_tensor> part_norms() const;       // selective: of parts, [rank], [key_dim], [key_dim]; or none

  bool has_heads() const { return config_.recurrent.heads > 0; }
  bool has_rate_up() const { return config_.recurrent.rank > 0; }
  bool has_gate_up() const { return has_rate_up() && config_.recurrent.type == recurrent_type::channel_delta; }
  bool has_skip() const {
    return config_.recurrent.type == recurrent_type::ssd || config_.recurrent.type == recurrent_type::selective;
  }

  std::vector<wanted_tensor> all() const;

private:
  wanted_tensor named(const char* name, std::vector<std::size_t> shape) const;

  const model_config& config_;
  int layer_;
};

/// Channels of the convolution.
int recurrent_channels(const model_config& config);

/// What a layer gives to its last product.
int recurrent_inner(const model_config& config);

/// `running`: sequences; `snapshots`: further states; `pending`: rows that a sequence may take back.
kernels::state_shape state_shape_of(const model_config& config, int running, int snapshots, int pending);

/// The convolution's weights as kernels read them: [taps][channels].
std::vector<float> tap_major(const std::vector<float>& weights, std::size_t channels, std::size_t taps);

} // namespace troupe
