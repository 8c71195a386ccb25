// Activation functions, sixteen at a time. Only for the target units.
#pragma once

#include "kernels/cpu/isa/simd.hpp"
#include "kernels/formats/activation.hpp"

namespace troupe::kernels {
namespace {

/// tanh x to about 1e-7 absolutely.
inline vec tanh(vec x) {
  const vec one = broadcast(1.0f), two = broadcast(2.0f);
  return one - two / (exp(x * two) + one);
}

/// x / (1 + e^-(alpha x)).
inline vec swish(vec x, vec alpha_x) { return x / (broadcast(1.0f) + exp(zero() - alpha_x)); }

/// x Φ(x) = max(x, 0) - |x| Φ(-|x|), with formula 7.1.26 of Abramowitz and Stegun, whose error is below 1.5e-7.
inline vec gelu(vec x) {
  const vec magnitude = min(broadcast(30.0f), max(x, zero() - x)); // beyond, Φ(-|x|) is 0
  const vec z = magnitude * broadcast(0.70710678f);
  const vec t = broadcast(1.0f) / fma(broadcast(0.3275911f), z, broadcast(1.0f));
  vec p = broadcast(1.061405429f);
  p = fma(p, t, broadcast(-1.453152027f));
  p = fma(p, t, broadcast(1.421413741f));
  p = fma(p, t, broadcast(-0.284496736f));
  p = fma(p, t, broadcast(0.254829592f));
  const vec tail = broadcast(0.5f) * p * t * exp(zero() - z * z);
  return max(zero(), x) - magnitude * tail;
}

/// x / (1 + e^-2u) = x (1 + tanh u) / 2, with u = sqrt(2 / π) (x + 0.044715 x^3).
inline vec gelu_tanh(vec x) { return swish(x, broadcast(1.5957691216f) * fma(x * x * x, broadcast(0.044715f), x)); }

/// Above 0 the lower branch adds e^limit - 1 instead of 0, whose part is below 1e-6.
inline vec xielu(const activation& act, vec x) {
  const vec above = max(zero(), x), below = min(zero(), x), linear = broadcast(act.beta) * x;
  const vec curve = exp(min(broadcast(act.limit), below)) - broadcast(1.0f) - below;
  return fma(broadcast(act.negative), curve, fma(above * above, broadcast(act.alpha), linear));
}

template <activation_type Act>
[[gnu::always_inline]] inline vec activated(const activation& act, vec x) {
  if constexpr (Act == activation_type::silu)
    return swish(x, x);
  else if constexpr (Act == activation_type::gelu)
    return gelu(x);
  else if constexpr (Act == activation_type::gelu_tanh)
    return gelu_tanh(x);
  else if constexpr (Act == activation_type::relu)
    return max(zero(), x);
  else if constexpr (Act == activation_type::relu_squared)
    return max(zero(), x) * max(zero(), x);
  else if constexpr (Act == activation_type::xielu)
    return xielu(act, x);
  else
    return x;
}

template <activation_type Act>
[[gnu::always_inline]] inline vec gated(const activation& act, vec gate, vec up) {
  if constexpr (Act == activation_type::clamped_swiglu) {
    const vec most = broadcast(act.limit);
    gate = min(most, gate);
    up = min(most, max(broadcast(-act.limit), up));
    return swish(gate, broadcast(act.alpha) * gate) * (up + broadcast(1.0f));
  } else if constexpr (Act == activation_type::cut_swiglu) {
    const vec most = broadcast(act.limit);
    return min(broadcast(act.alpha * act.limit), swish(gate, gate)) * min(most, max(broadcast(-act.limit), up));
  } else {
    return activated<Act>(act, gate) * up;
  }
}

/// Calls f.template operator()<Act>().
template <class F>
[[gnu::always_inline]] inline void with_activation(activation_type type, const F& f) {
  using enum activation_type;
  switch (type) {
    case none: return f.template operator()<none>();
    case silu: return f.template operator()<silu>();
    case gelu: return f.template operator()<gelu>();
    case gelu_tanh: return f.template operator()<gelu_tanh>();
    case relu: return f.template operator()<relu>();
    case relu_squared: return f.template operator()<relu_squared>();
    case clamped_swiglu: return f.template operator()<clamped_swiglu>();
    case cut_swiglu: return f.template operator()<cut_swiglu>();
    case xielu: return f.template operator()<xielu>();
  }
}

} // namespace
} // namespace troupe::kernels
