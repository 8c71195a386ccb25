#include "tests/kernels/reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace troupe::kernels::reference {

double value(const void* data, dtype type, std::size_t index) {
  if (type == dtype::f32)
    return static_cast<const float*>(data)[index];
  const std::uint32_t bits = static_cast<const std::uint16_t*>(data)[index];
  if (type == dtype::bf16) {
    const std::uint32_t wide = bits << 16;
    float x;
    std::memcpy(&x, &wide, 4);
    return x;
  }
  const int exponent = static_cast<int>(bits >> 10 & 31);
  const double mantissa = bits & 1023;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31)
    return mantissa != 0 ? NAN : sign * INFINITY;
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25));
}

std::uint16_t to_bf16(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if (std::isnan(x))
    return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

std::uint16_t to_f16(float x) {
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double magnitude = std::abs(static_cast<double>(x));
  if (std::isnan(x))
    return 0x7e00;
  if (magnitude >= 65520)
    return sign | 0x7c00;
  if (magnitude < std::ldexp(1, -14)) // rounding up may give the first normal number: bits are consecutive
    return sign | static_cast<std::uint16_t>(std::nearbyint(std::ldexp(magnitude, 24)));
  int exponent;
  std::frexp(magnitude, &exponent);
  const auto mantissa = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, 11 - exponent)));
  return sign | static_cast<std::uint16_t>(((exponent + 14 - 1) << 10) + mantissa);
}

double to_e4m3(double x) {
  int exponent;
  std::frexp(x, &exponent);
  const double step = std::ldexp(1, std::max(exponent, -5) - 4); // 1.0 is 0.5 * 2^1
  return std::copysign(std::min(std::nearbyint(std::abs(x) / step) * step, 448.0), x);
}

std::vector<double> linear(const std::vector<double>& in, std::size_t rows, const stored_matrix& w, const float* bias) {
  std::vector<double> weights(w.rows * w.cols);
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i] = value(w.data, dtype_of(w.format), i);
  std::vector<double> out(rows * w.rows);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t o = 0; o < w.rows; ++o) {
      double sum = bias != nullptr ? bias[o] : 0;
      for (std::size_t k = 0; k < w.cols; ++k)
        sum += in[r * w.cols + k] * weights[o * w.cols + k];
      out[r * w.rows + o] = sum;
    }
  return out;
}

double silu_gate(double gate, double up) { return gate / (1 + std::exp(-gate)) * up; }

std::vector<double> rms_norm(const std::vector<double>& x, const float* weight, double eps) {
  double squares = 0;
  for (const double v : x)
    squares += v * v;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  std::vector<double> out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    out[i] = x[i] * scale * weight[i];
  return out;
}

std::vector<double> mixture(const std::vector<double>& in, std::size_t rows, const std::vector<expert>& experts,
                            const activation& act) {
  const std::size_t hidden = in.size() / rows;
  std::vector<double> out(in.size());
  for (const auto& e : experts)
    for (std::size_t i = 0; i < e.rows.size(); ++i) {
      const auto first = static_cast<std::size_t>(e.rows[i]) * hidden;
      const std::vector<double> x(in.begin() + static_cast<std::ptrdiff_t>(first),
                                  in.begin() + static_cast<std::ptrdiff_t>(first + hidden));
      auto middle = linear(x, 1, e.gate, e.up_bias);
      const auto up = linear(x, 1, e.up, e.up_bias + e.up.rows);
      for (std::size_t k = 0; k < middle.size(); ++k)
        middle[k] = gated(act, middle[k], up[k]);
      const auto given = linear(middle, 1, e.down, e.down_bias);
      for (std::size_t k = 0; k < hidden; ++k)
        out[first + k] += e.factors[i] * given[k];
    }
  return out;
}

std::vector<double> rotate(const std::vector<double>& x, const float* rope) {
  const std::size_t half = x.size() / 2;
  std::vector<double> out(x.size());
  for (std::size_t i = 0; i < half; ++i) {
    const double cosine = rope[i], sine = rope[half + i];
    out[i] = x[i] * cosine - x[half + i] * sine;
    out[half + i] = x[half + i] * cosine + x[i] * sine;
  }
  return out;
}

namespace {

/// Values weighted by scores that `score` makes of the position and its product. `sink`: the score of one more token,
/// whose value is 0.
template <class Score>
std::vector<double> weighted(const std::vector<double>& q, const std::vector<std::vector<double>>& keys,
                             const std::vector<std::vector<double>>& values, std::size_t from, std::size_t to,
                             const Score& score, double sink = -std::numeric_limits<double>::infinity()) {
  std::vector<double> scores;
  for (std::size_t t = from; t < to; ++t)
    scores.push_back(score(t, std::inner_product(q.begin(), q.end(), keys[t].begin(), 0.0)));
  const double highest = std::max(sink, *std::max_element(scores.begin(), scores.end()));
  double sum = std::exp(sink - highest);
  std::vector<double> out(q.size());
  for (std::size_t t = from; t < to; ++t) {
    const double weight = std::exp(scores[t - from] - highest);
    sum += weight;
    for (std::size_t d = 0; d < q.size(); ++d)
      out[d] += weight * values[t][d];
  }
  for (double& x : out)
    x /= sum;
  return out;
}

} // namespace

std::vector<double> attention(const std::vector<double>& q, const std::vector<std::vector<double>>& keys,
                              const std::vector<std::vector<double>>& values, std::size_t from, std::size_t to,
                              double scale) {
  return weighted(q, keys, values, from, to, [&](std::size_t, double product) { return product * scale; });
}

std::vector<double> distance_attention(const std::vector<double>& q, const std::vector<std::vector<double>>& keys,
                                       const std::vector<std::vector<double>>& values, std::size_t from, std::size_t to,
                                       double scale, const std::vector<double>& mix,
                                       const std::vector<float>& numbers) {
  const auto extent = numbers.size() / mix.size();
  return weighted(q, keys, values, from, to, [&](std::size_t t, double product) {
    const auto distance = to - 1 - t;
    double score = product * scale;
    for (std::size_t i = 0; distance < extent && i < mix.size(); ++i)
      score += mix[i] * numbers[i * extent + distance];
    return score;
  });
}

std::vector<double> layer_norm(const std::vector<double>& x, const float* weight, const float* bias, double eps) {
  const auto n = static_cast<double>(x.size());
  double mean = 0, variance = 0;
  for (const double v : x)
    mean += v / n;
  for (const double v : x)
    variance += (v - mean) * (v - mean) / n;
  std::vector<double> out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    out[i] = (x[i] - mean) / std::sqrt(variance + eps) * weight[i] + (bias != nullptr ? bias[i] : 0);
  return out;
}

double activated(activation_type type, double x) {
  switch (type) {
    case activation_type::silu: return x / (1 + std::exp(-x));
    case activation_type::gelu: return x * std::erfc(-x / std::sqrt(2.0)) / 2;
    case activation_type::gelu_tanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case activation_type::relu: return std::max(x, 0.0);
    case activation_type::relu_squared: return std::max(x, 0.0) * std::max(x, 0.0);
    case activation_type::none:
    case activation_type::xielu:
    case activation_type::cut_swiglu:
    case activation_type::clamped_swiglu: break;
  }
  return x;
}

double gated(const activation& act, double gate, double up) {
  if (act.type == activation_type::cut_swiglu)
    return std::min(activated(activation_type::silu, gate), double(act.alpha) * act.limit) *
      std::clamp(up, -double(act.limit), double(act.limit));
  if (act.type != activation_type::clamped_swiglu)
    return activated(act.type, gate) * up;
  const double limit = act.limit, low = std::min(gate, limit);
  return low / (1 + std::exp(-act.alpha * low)) * (std::clamp(up, -limit, limit) + 1);
}

std::vector<double> shaped_attention(const std::vector<double>& q, const std::vector<std::vector<double>>& keys,
                                     const std::vector<std::vector<double>>& values, std::size_t from, std::size_t to,
                                     const attention_scores& how, std::size_t head) {
  const auto score = [&](std::size_t t, double product) {
    double result = product * how.scale;
    if (how.soft_cap > 0)
      result = how.soft_cap * std::tanh(result / how.soft_cap);
    if (how.slopes != nullptr)
      result += how.slopes[head] * (double(t) - double(to - 1));
    return result;
  };
  if (how.sinks != nullptr)
    return weighted(q, keys, values, from, to, score, how.sinks[head]);
  return weighted(q, keys, values, from, to, score);
}

} // namespace troupe::kernels::reference
