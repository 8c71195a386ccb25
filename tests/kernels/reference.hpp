// Reference ops for kernel tests: plain loops in double precision, over whole sequences instead of a paged cache.
#pragma once

#include "kernels/ops.hpp"

#include <vector>

namespace troupe::kernels::reference {

/// Element `index` of stored data, exactly.
double value(const void* data, dtype type, std::size_t index);

/// Rounds to nearest even; returns the bits.
std::uint16_t to_bf16(float x);
std::uint16_t to_f16(float x);
/// Rounds to the nearest finite number of E4M3.
double to_e4m3(double x);

/// out [in rows, w.rows] = in [rows, w.cols] · wᵀ + bias (or null).
std::vector<double> linear(const std::vector<double>& in, std::size_t rows, const stored_matrix& w, const float* bias);

/// silu(gate) * up.
double silu_gate(double gate, double up);

/// x [n] / sqrt(mean(x^2) + eps) * weight.
std::vector<double> rms_norm(const std::vector<double>& x, const float* weight, double eps);

/// (x - mean) / sqrt(variance + eps) * weight + bias (or null).
std::vector<double> layer_norm(const std::vector<double>& x, const float* weight, const float* bias, double eps);

/// An activation of one sum; clamped_swiglu and cut_swiglu have none.
double activated(activation_type type, double x);

/// act(gate) * up, or gpt-oss' or Step's clamped form.
double gated(const activation& act, double gate, double up);

/// A gated expert in floats, and the rows that chose it.
struct expert {
  stored_matrix gate, up, down;
  const float* up_bias = nullptr;   // gate's, then up's
  const float* down_bias = nullptr; // of down
  std::vector<std::int32_t> rows;
  std::vector<float> factors;
};

/// The sum of what its experts give to each row of in [rows, hidden], times their factors.
std::vector<double> mixture(const std::vector<double>& in, std::size_t rows, const std::vector<expert>& experts,
                            const activation& act);

/// x [head_dim] rotated by the halves convention; `rope`: head_dim/2 cosines, then sines.
std::vector<double> rotate(const std::vector<double>& x, const float* rope);

/// One query over keys and values [tokens][head_dim], positions [from, to).
std::vector<double> attention(const std::vector<double>& q, const std::vector<std::vector<double>>& keys,
                              const std::vector<std::vector<double>>& values, std::size_t from, std::size_t to,
                              double scale);

/// The same for the query of `head` at position to - 1, with capped scores, ALiBi's slopes and sinks.
std::vector<double> shaped_attention(const std::vector<double>& q, const std::vector<std::vector<double>>& keys,
                                     const std::vector<std::vector<double>>& values, std::size_t from, std::size_t to,
                                     const attention_scores& how, std::size_t head);

/// One query at position to - 1 whose scores have numbers of distances, too: `mix` [width] of the rows of `numbers`
/// [width, extent].
std::vector<double> distance_attention(const std::vector<double>& q, const std::vector<std::vector<double>>& keys,
                                       const std::vector<std::vector<double>>& values, std::size_t from, std::size_t to,
                                       double scale, const std::vector<double>& mix, const std::vector<float>& numbers);

} // namespace troupe::kernels::reference
