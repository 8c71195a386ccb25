#include "kernels/cpu/gaussian_rows.hpp"

#include <array>
#include <cmath>

namespace troupe::kernels {

namespace {

/// The sum of f of all elements: eight sums of every eighth, so that compilers use vectors, and then of these in order.
template <class F>
double sum_of(const float* x, std::size_t n, const F& f) {
  std::array<double, 8> sums{};
  const std::size_t whole = n / sums.size() * sums.size();
  for (std::size_t i = 0; i < whole; i += sums.size())
    for (std::size_t k = 0; k < sums.size(); ++k)
      sums[k] += f(x[i + k]);
  double sum = 0;
  for (const double s : sums)
    sum += s;
  for (std::size_t i = whole; i < n; ++i)
    sum += f(x[i]);
  return sum;
}

float tanh_gelu(float x) {
  constexpr float width = 0.7978845608f; // sqrt(2 / pi)
  return x / 2 * (1 + std::tanh(width * (x + 0.044715f * x * x * x)));
}

} // namespace

float mean_square(const float* x, std::size_t n) {
  return static_cast<float>(sum_of(x, n, [](double v) { return v * v; }) / static_cast<double>(n));
}

void gate_gaussian_row(float* out, const float* gate, const float* up, std::size_t n, float deviations) {
  const double count = static_cast<double>(n), mean = sum_of(gate, n, [](double v) { return v; }) / count;
  const double variance = sum_of(gate, n, [mean](double v) { return (v - mean) * (v - mean); }) / count;
  const auto least = static_cast<float>(mean + double(deviations) * std::sqrt(variance));
  for (std::size_t i = 0; i < n; ++i)
    out[i] = gate[i] > least ? tanh_gelu(gate[i] - least) * up[i] : 0;
}

} // namespace troupe::kernels
