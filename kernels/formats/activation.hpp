// Activation functions of a model's MLP, and their parameters. Plain: the kernels of all backends read it.
#pragma once

#include <cstdint>

namespace troupe::kernels {

enum class activation_type : std::uint8_t {
  none,
  silu,          // x / (1 + e^-x)
  gelu,          // x * Φ(x), Φ by the error function
  gelu_tanh,     // the same with Φ by tanh
  relu,          // max(x, 0)
  relu_squared,  // max(x, 0)^2
  clamped_swiglu // gated only: gpt-oss' (up + 1) * gate / (1 + e^(-alpha gate)), both clamped to `limit`
};

struct activation {
  activation_type type = activation_type::none;
  float alpha = 1; // clamped_swiglu
  float limit = 0; // clamped_swiglu

  bool operator==(const activation&) const = default;
};

} // namespace troupe::kernels
