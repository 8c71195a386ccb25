#include "runtime/model/rope.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace troupe {

namespace {

/// theta ** (2i / head_dim) in float32: the wavelengths of the pairs of dimensions, divided by 2 pi.
std::vector<float> powers(double theta, int head_dim) {
  std::vector<float> result(static_cast<std::size_t>(head_dim / 2));
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = static_cast<float>(std::pow(theta, static_cast<float>(2 * i) / static_cast<float>(head_dim)));
  return result;
}

std::vector<float> inverted(std::vector<float> values) {
  for (float& v : values)
    v = 1 / v;
  return values;
}

std::vector<float> yarn(const rope_config& c, int head_dim) {
  // The dimension at which the original context makes `rotations` full turns.
  auto dimension = [&](double rotations) {
    return head_dim * std::log(c.original_context / (rotations * 2 * std::numbers::pi)) / (2 * std::log(c.theta));
  };
  double low = dimension(c.beta_fast), high = dimension(c.beta_slow);
  if (c.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, head_dim - 1.0);
  if (low == high)
    high += 0.001;
  auto result = powers(c.theta, head_dim);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const float ramp = (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float kept = 1 - std::clamp(ramp, 0.0f, 1.0f);
    const float interpolated = 1 / (static_cast<float>(c.factor) * result[i]);
    result[i] = interpolated * (1 - kept) + 1 / result[i] * kept;
  }
  return result;
}

std::vector<float> llama3(const rope_config& c, int head_dim) {
  const double longest = c.original_context / c.low_freq_factor, shortest = c.original_context / c.high_freq_factor;
  auto result = inverted(powers(c.theta, head_dim));
  for (float& frequency : result) {
    const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
    if (wavelength > longest) {
      frequency /= static_cast<float>(c.factor);
    } else if (wavelength >= shortest) {
      const float kept = (static_cast<float>(c.original_context) / wavelength - static_cast<float>(c.low_freq_factor)) /
        static_cast<float>(c.high_freq_factor - c.low_freq_factor);
      frequency = (1 - kept) * frequency / static_cast<float>(c.factor) + kept * frequency;
    }
  }
  return result;
}

} // namespace

double yarn_attention_factor(double factor, std::optional<double> mscale, std::optional<double> mscale_all_dim) {
  auto scaled = [factor](double scale) { return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1; };
  if (mscale.value_or(0) != 0 && mscale_all_dim.value_or(0) != 0)
    return scaled(*mscale) / scaled(*mscale_all_dim);
  return scaled(1);
}

namespace {

std::vector<float> undivided_frequencies(const rope_config& c, int head_dim, int length) {
  switch (c.type) {
    case rope_type::plain: return inverted(powers(c.theta, head_dim));
    case rope_type::linear: {
      auto result = inverted(powers(c.theta, head_dim));
      for (float& frequency : result)
        frequency /= static_cast<float>(c.factor);
      return result;
    }
    case rope_type::dynamic: {
      const double stretch = c.factor * std::max<double>(length, c.original_context) / c.original_context -
        (c.factor - 1);
      return inverted(powers(c.theta * std::pow(stretch, head_dim / (head_dim - 2.0)), head_dim));
    }
    case rope_type::yarn: return yarn(c, head_dim);
    case rope_type::llama3: return llama3(c, head_dim);
  }
  return {};
}

} // namespace

std::vector<float> inverse_frequencies(const rope_config& c, int head_dim, int length) {
  auto result = undivided_frequencies(c, head_dim, length);
  for (std::size_t i = 0; i < c.divisors.size(); ++i)
    result.at(i) /= c.divisors[i];
  return result;
}

std::vector<float> rope_table(const rope_config& c, int head_dim, int positions) {
  const auto half = static_cast<std::size_t>(head_dim / 2);
  std::vector<float> table(static_cast<std::size_t>(positions) * 2 * half);
  auto frequencies = inverse_frequencies(c, head_dim, 1);
  const auto scale = static_cast<float>(c.attention_factor);
  for (int p = 0; p < positions; ++p) {
    if (c.type == rope_type::dynamic && p + 1 > c.original_context)
      frequencies = inverse_frequencies(c, head_dim, p + 1);
    float* row = table.data() + static_cast<std::size_t>(p) * 2 * half;
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = static_cast<float>(p) * frequencies[i]; // rounded to float32, as transformers does
      row[i] = static_cast<float>(std::cos(angle)) * scale;
      row[half + i] = static_cast<float>(std::sin(angle)) * scale;
    }
  }
  return table;
}

} // namespace troupe
