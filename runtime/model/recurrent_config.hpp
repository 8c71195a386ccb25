// Part of model_config. Describes what a model's layers consist of where they are not all alike, and the recurrence of
// those that have one: a short convolution, a gated delta rule, Mamba 1 or 2 (kernels/recurrent.hpp).
#pragma once

#include "kernels/recurrent.hpp"

#include <cstdint>

namespace troupe {

/// Rows that a sequence with recurrent layers may take back: guesses of one step.
inline constexpr int most_state_guesses = 8;

struct layer_parts {
  bool attention = true;
  bool recurrence = false; // beside attention: both read the same, and both are added
  bool mlp = true;

  bool mixes() const { return attention || recurrence; }
  bool operator==(const layer_parts&) const = default;
};

enum class recurrent_type : std::uint8_t {
  none,
  short_convolution, // LFM 2: of the product of two gates' inputs
  delta,             // gated DeltaNet: a decay for each head
  channel_delta,     // Kimi delta attention: for each dimension of a key
  ssd,               // Mamba 2
  selective,         // Mamba 1: a decay for each value and each dimension of a key, which all values share
  branches // short convolutions of K, of V, and of what attention and MLP give: no layer is recurrent, all have states
};

struct recurrent_config {
  recurrent_type type = recurrent_type::none;
  int taps = 0; // of the convolution
  bool conv_bias = false;
  bool projection_bias = false;    // of the products into the layer and out of it
  int heads = 0, key_heads = 0;    // of values, and of keys; the latter divides the former
  bool in_turns = false;           // head i of values has head i % key_heads of keys; else neighbours have one
  int key_dim = 0, value_dim = 0;  // of a head
  float least_dt = 0, most_dt = 0; // ssd: limits of time steps; no upper one if it is not above the lower
  bool log_decay = true;           // decays are stored as logarithms of their magnitudes
  kernels::gate_norm norm = kernels::gate_norm::none;
  int norm_group = 0;        // columns that are normed together
  bool head_norm = false;    // the norm has the weights of one head, for all
  bool sigmoid_gate = false; // else silu
  float norm_eps = 0;        // of the norm; 0: the model's
  int rank = 0;              // channel_delta: of gates and decays; selective: of time steps
  bool apart = false;        // delta: queries, keys and values have matrices and convolutions of their own
  float most_learned = 1;    // delta: how much a row learns at most, 2 where it may turn what was known around
  float decay_bound = 0;     // channel_delta, negative: decays are e^(bound * sigmoid(|decay| * (rate + bias))); 0: not
  bool parts_norm = false;   // selective: RMS norms, with norm_eps, of what time steps, keys and queries are made of
  bool parts_norm_plain = false; // without weights

  // Factors (falcon_h1): of what the projections give (gate, x, B, C, dt), and of what is added.
  float gate_scale = 1, x_scale = 1, b_scale = 1, c_scale = 1, rate_scale = 1;
  float out_scale = 1, attention_scale = 1;     // of the recurrence and of attention beside it
  float mlp_gate_scale = 1, mlp_down_scale = 1; // which are part of the weights once they are loaded

  explicit operator bool() const { return type != recurrent_type::none; }
  int inner() const { return heads * value_dim; }
  int keys() const { return key_heads * key_dim; }
  bool operator==(const recurrent_config&) const = default;
};

} // namespace troupe
