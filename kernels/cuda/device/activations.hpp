// Activation functions of MLPs (kernels/formats/activation.hpp), as the CPU's (cpu/isa/activations.hpp). Only for
// kernels.
#pragma once

#include "kernels/cuda/device/simt.hpp"
#include "kernels/formats/activation.hpp"

namespace troupe::kernels::cuda {

/// tanh x to about 1e-7 absolutely.
TROUPE_DEVICE float tanh_of(float x) { return 1 - 2 / (simt::exp(2 * x) + 1); }

/// x / (1 + e^-y).
TROUPE_DEVICE float swish(float x, float y) { return x / (1 + simt::exp(-y)); }

/// x Φ(x) = max(x, 0) - |x| Φ(-|x|), with formula 7.1.26 of Abramowitz and Stegun, whose error is below 1.5e-7.
TROUPE_DEVICE float gelu(float x) {
  const float size = x < 0 ? -x : x, magnitude = size < 30 ? size : 30; // beyond, Φ(-|x|) is 0
  const float z = 0.70710678f * magnitude, t = 1 / simt::fused(0.3275911f, z, 1);
  float p = simt::fused(1.061405429f, t, -1.453152027f);
  p = simt::fused(p, t, 1.421413741f);
  p = simt::fused(p, t, -0.284496736f);
  p = simt::fused(p, t, 0.254829592f);
  const float above = x > 0 ? x : x == x ? 0 : x; // NaN stays NaN
  return above - magnitude * (0.5f * p * t * simt::exp(-z * z));
}

/// x (1 + tanh u) / 2, with u = sqrt(2 / π) (x + 0.044715 x^3).
TROUPE_DEVICE float gelu_tanh(float x) { return swish(x, 1.5957691216f * simt::fused(x * x * x, 0.044715f, x)); }

/// NaN stays NaN.
TROUPE_DEVICE float relu(float x) { return x < 0 ? 0 : x; }

/// Above 0 the lower branch adds e^limit - 1 instead of 0, whose part is below 1e-6.
TROUPE_DEVICE float xielu(const activation& act, float x) {
  const float above = x > 0 ? x : 0, below = x > 0 ? 0 : x;
  const float curve = simt::exp(below < act.limit ? below : act.limit) - 1 - below;
  return simt::fused(act.negative, curve, simt::fused(above * above, act.alpha, act.beta * x));
}

TROUPE_DEVICE float activated(const activation& act, float x) {
  switch (act.type) {
    case activation_type::silu: return swish(x, x);
    case activation_type::gelu: return gelu(x);
    case activation_type::gelu_tanh: return gelu_tanh(x);
    case activation_type::relu: return relu(x);
    case activation_type::relu_squared: return relu(x) * relu(x);
    case activation_type::xielu: return xielu(act, x);
    case activation_type::none:
    case activation_type::cut_swiglu:
    case activation_type::clamped_swiglu: break;
  }
  return x;
}

TROUPE_DEVICE float gated(const activation& act, float gate, float up) {
  if (act.type != activation_type::clamped_swiglu && act.type != activation_type::cut_swiglu)
    return activated(act, gate) * up;
  const float most = act.limit;
  const bool cut = act.type == activation_type::cut_swiglu;
  const float highest = cut ? act.alpha * most : most;
  if (cut)
    gate = swish(gate, gate);
  gate = gate > highest ? highest : gate;
  up = up > most ? most : up < -most ? -most : up;
  return cut ? gate * up : swish(gate, act.alpha * gate) * (up + 1);
}

} // namespace troupe::kernels::cuda
