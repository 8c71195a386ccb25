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
    case rope_type::proportional: {
      auto result = inverted(powers(c.theta, head_dim));
      const auto turned = static_cast<std::size_t>(c.portion * head_dim / 2);
      std::fill(result.begin() + static_cast<std::ptrdiff_t>(std::min(turned, result.size())), result.end(), 0.0f);
      for (float& frequency : result)
        frequency /= static_cast<float>(c.factor);
      return result;
    }
    case rope_type::longrope: {
      const auto& divisors = length > c.original_context ? c.long_divisors : c.short_divisors;
      auto result = powers(c.theta, head_dim);
      for (std::size_t i = 0; i < result.size(); ++i)
        result[i] = 1 / (divisors.at(i) * result[i]);
      return result;
    }
  }
  return {};
}

} // namespace

std::vector<float> inverse_frequencies(const rope_config& c, int head_dim, int length) {
  auto result = undivided_frequencies(c, c.dims > 0 ? c.dims : head_dim, length);
  for (std::size_t i = 0; i < c.divisors.size(); ++i)
    result.at(i) /= c.divisors[i];
  return result;
}

std::vector<float> rope_table(const rope_config& c, int head_dim, int positions, int length) {
  const auto half = static_cast<std::size_t>(head_dim / 2);
  std::vector<float> table(static_cast<std::size_t>(positions) * 2 * half);
  const auto frequencies = inverse_frequencies(c, head_dim, length);
  const auto scale = static_cast<float>(c.attention_factor);
  for (int p = 0; p < positions; ++p) {
    float* row = table.data() + static_cast<std::size_t>(p) * 2 * half;
    std::fill_n(row + frequencies.size(), half - frequencies.size(), 1.0f); // dimensions that are not rotated
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
      const double angle = static_cast<float>(p) * frequencies[i]; // rounded to float32, as transformers does
      row[i] = static_cast<float>(std::cos(angle)) * scale;
      row[half + i] = static_cast<float>(std::sin(angle)) * scale;
    }
  }
  return table;
}

int rope_border(const rope_config& c, int context) {
  return c.type == rope_type::longrope && c.original_context < context ? static_cast<int>(c.original_context) : 0;
}

std::vector<float> alibi_slopes(int heads) {
  int power = 1; // the largest power of two up to `heads`
  while (2 * power <= heads)
    power *= 2;
  std::vector<float> slopes;
  for (int i = 1; i <= power; ++i)
    slopes.push_back(static_cast<float>(std::exp2(-8.0 * i / power)));
  for (int i = 1; static_cast<int>(slopes.size()) < heads; i += 2)
    slopes.push_back(static_cast<float>(std::exp2(-4.0 * i / power)));
  return slopes;
}

std::vector<std::uint32_t> rotated_order(const rope_config& c, int head_dim) {
  const auto dim = static_cast<std::uint32_t>(head_dim), half = dim / 2;
  const auto pairs = static_cast<std::uint32_t>(c.dims > 0 ? c.dims : head_dim) / 2;
  if (pairs == half && !c.interleaved)
    return {};
  std::vector<std::uint32_t> order(dim);
  for (std::uint32_t i = 0; i < half; ++i) {
    const auto rest = pairs + i; // behind the rotated dimensions, first halves then second ones
    order[i] = i >= pairs ? rest : c.interleaved ? 2 * i : i;
    order[half + i] = i >= pairs ? half + i : c.interleaved ? 2 * i + 1 : pairs + i;
  }
  return order;
}

} // namespace troupe
