// Activation functions of a model's MLP, and their parameters. Plain: the kernels of all backends read it.
#pragma once

#include <cstdint>

namespace troupe::kernels {

enum class activation_type : std::uint8_t {
  none,
  silu,           // x / (1 + e^-x)
  gelu,           // x * Φ(x), Φ by the error function
  gelu_tanh,      // the same with Φ by tanh
  relu,           // max(x, 0)
  relu_squared,   // max(x, 0)^2
  clamped_swiglu, // gated only: gpt-oss' (up + 1) * gate / (1 + e^(-alpha gate)), both clamped to `limit`
  cut_swiglu,     // gated only: silu(gate), at most alpha * limit, times up within `limit` of 0
  xielu           // alpha x^2 + beta x; up to 0, negative (e^min(x, limit) - 1 - x) + beta x. Not gated.
};

struct activation {
  activation_type type = activation_type::none;
  float alpha = 1; // clamped_swiglu, cut_swiglu, xielu
  float limit = 0; // clamped_swiglu, cut_swiglu, xielu
  float beta = 0;  // xielu
  float negative = 0;

  bool operator==(const activation&) const = default;
};

} // namespace troupe::kernels
