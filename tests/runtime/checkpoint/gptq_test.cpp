// Quantisation with error feedback: the factor, and what it gains over rounding each weight for itself.
#include "runtime/checkpoint/quantised/gptq.hpp"

#include "kernels/formats/f16.hpp"
#include "runtime/checkpoint/quantised/quantise_blocks.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/support/error.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

using namespace troupe;
using kernels::weight_format;

namespace {

/// Second moments of correlated inputs of uneven size.
std::vector<double> correlated_moments(std::size_t n, unsigned seed, std::size_t samples = 600) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> hessian(n * n), x(n);
  for (std::size_t s = 0; s < samples; ++s) {
    double common = normal(random);
    for (std::size_t i = 0; i < n; ++i) {
      common = 0.8 * common + 0.6 * normal(random);
      x[i] = (common + 0.3 * normal(random)) * (1 + 3 * double(i % 7 == 0));
    }
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        hessian[i * n + j] += x[i] * x[j];
  }
  return hessian;
}

std::vector<float> random_rows(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> rows(count);
  for (auto& w : rows)
    w = normal(random);
  return rows;
}

/// Σ e H eᵀ over rows: the squared error of what the matrix gives.
double output_error(const std::vector<float>& got, const std::vector<float>& want, const std::vector<double>& hessian,
                    std::size_t n) {
  double sum = 0;
  for (std::size_t r = 0; r < want.size() / n; ++r)
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        sum += (double(got[r * n + i]) - want[r * n + i]) * hessian[i * n + j] *
          (double(got[r * n + j]) - want[r * n + j]);
  return sum;
}

std::vector<float> expanded(weight_format format, const std::vector<std::uint8_t>& bytes, std::size_t n) {
  std::vector<float> values(bytes.size() / row_bytes(format, n) * n);
  for (std::size_t r = 0; r < values.size() / n; ++r)
    to_floats(format, bytes.data() + r * row_bytes(format, n), n, &values[r * n]);
  return values;
}

struct coded_rows {
  std::vector<std::uint8_t> codes, zeros;
  std::vector<std::uint16_t> scales;
  std::vector<float> values;

  coded_rows(const gptq_format& format, std::vector<float> rows, const error_feedback& feedback) {
    const auto n = feedback.inputs, group = format.group == 0 ? n : format.group, groups = n / group;
    const auto count = rows.size() / n;
    codes.resize(count * n);
    zeros.resize(count * groups);
    scales.resize(count * groups);
    std::vector<gptq_row> to;
    for (std::size_t r = 0; r < count; ++r)
      to.push_back({&codes[r * n], &scales[r * groups], &zeros[r * groups]});
    quantise_with_feedback(format, rows, feedback, to);
    values.resize(count * n);
    for (std::size_t r = 0; r < count; ++r)
      for (std::size_t position = 0; position < n; ++position) {
        const std::size_t i = feedback.order[position], g = r * groups + position / group;
        values[r * n + i] = kernels::from_f16(scales[g]) * float(int(codes[r * n + i]) - int(zeros[g]));
      }
  }
};

} // namespace

TEST_CASE("The factor is that of the damped Hessian's inverse") {
  kernels::thread_pool pool(2);
  for (const std::size_t n : {1, 5, 64, 130}) {
    CAPTURE(n);
    const auto hessian = correlated_moments(n, 1);
    for (const bool by_importance : {false, true}) {
      const auto feedback = make_error_feedback(hessian, n, by_importance, pool);
      double mean = 0;
      for (std::size_t i = 0; i < n; ++i)
        mean += hessian[i * n + i] / double(n);
      // U H Uᵀ = 1, with U's rows and H in the order of quantisation.
      const auto damped = [&](std::size_t a, std::size_t b) {
        return hessian[feedback.order[a] * n + feedback.order[b]] + (a == b ? 0.01 * mean : 0);
      };
      double worst = 0;
      for (std::size_t i = 0; i < n; ++i) {
        std::vector<double> row(n);
        for (std::size_t k = i; k < n; ++k)
          for (std::size_t b = 0; b < n; ++b)
            row[b] += double(feedback.factor[i * n + k]) * damped(k, b);
        for (std::size_t j = 0; j < n; ++j) {
          double product = 0;
          for (std::size_t b = j; b < n; ++b)
            product += row[b] * double(feedback.factor[j * n + b]);
          worst = std::max(worst, std::abs(product - double(i == j)));
        }
      }
      CHECK(worst < 1e-3);
      if (by_importance)
        for (std::size_t i = 1; i < n; ++i)
          CHECK(feedback.importance[feedback.order[i]] <= feedback.importance[feedback.order[i - 1]]);
    }
  }
}

TEST_CASE("Feedback lessens the error of what a matrix gives, in every format with blocks") {
  kernels::thread_pool pool(2);
  constexpr std::size_t n = 256, rows = 3;
  const auto hessian = correlated_moments(n, 2);
  const auto feedback = make_error_feedback(hessian, n, false, pool);
  const auto weights = random_rows(rows * n, 3);
  for (const auto& traits : kernels::weight_formats) {
    const auto format = traits.format;
    if (!has_groups(format) || !can_be_written(format))
      continue;
    CAPTURE(traits.name);
    std::vector<std::uint8_t> plain(rows * row_bytes(format, n)), fed(plain.size());
    for (std::size_t r = 0; r < rows; ++r)
      quantise_row(format, &weights[r * n], n, &plain[r * row_bytes(format, n)], feedback.importance.data());
    auto used_up = weights;
    quantise_with_feedback(format, used_up, feedback, fed.data());
    const double before = output_error(expanded(format, plain, n), weights, hessian, n),
                 after = output_error(expanded(format, fed, n), weights, hessian, n);
    CHECK(after < 0.75 * before);
    CHECK(after > 0.01 * before);
  }
}

TEST_CASE("GPTQ's codes: more bits, smaller groups and the order of importance lessen the error") {
  kernels::thread_pool pool(2);
  constexpr std::size_t n = 256, rows = 4;
  const auto hessian = correlated_moments(n, 4);
  const auto in_order = make_error_feedback(hessian, n, false, pool),
             ordered = make_error_feedback(hessian, n, true, pool);
  const auto weights = random_rows(rows * n, 5);
  const auto error = [&](const gptq_format& format, const error_feedback& feedback) {
    const coded_rows coded(format, weights, feedback);
    for (const auto code : coded.codes)
      CHECK(code < 1 << format.bits);
    for (const auto zero : coded.zeros) {
      CHECK(zero > 0); // files of the first format store one less
      CHECK(zero < 1 << format.bits);
      if (format.symmetric)
        CHECK(zero == 1 << (format.bits - 1));
    }
    return output_error(coded.values, weights, hessian, n);
  };
  double last = INFINITY;
  for (const int bits : {2, 3, 4, 8}) {
    CAPTURE(bits);
    for (const bool symmetric : {true, false}) {
      const double whole = error({bits, 0, symmetric}, in_order), small = error({bits, 32, symmetric}, in_order);
      CHECK(small < whole);
      CHECK(whole < last);
      CHECK(error({bits, 128, symmetric}, ordered) < error({bits, 128, symmetric}, in_order) * 1.1);
    }
    last = error({bits, 0, true}, in_order);
  }
  CHECK(error({2, 64, false}, ordered) < error({2, 64, false}, in_order));
}

TEST_CASE("Inputs that were always 0 and weights that are odd upset nothing") {
  kernels::thread_pool pool(1);
  constexpr std::size_t n = 64;
  auto hessian = correlated_moments(n, 6);
  for (std::size_t i = 0; i < n; ++i) // dead: 3 and 40
    for (const std::size_t dead : {std::size_t(3), std::size_t(40)})
      hessian[dead * n + i] = hessian[i * n + dead] = 0;
  const auto feedback = make_error_feedback(hessian, n, true, pool);
  auto rows = random_rows(2 * n, 7);
  std::fill_n(rows.begin(), n, 0.0f);
  const coded_rows coded({4, 32, true}, rows, feedback);
  for (std::size_t i = 0; i < n; ++i)
    CHECK(coded.values[i] == 0);
  for (std::size_t i = n; i < 2 * n; ++i)
    CHECK(std::abs(coded.values[i] - rows[i]) < 0.05);
  const auto nothing = make_error_feedback(std::vector<double>(n * n), n, false, pool); // no input was ever seen
  CHECK(std::isfinite(coded_rows({4, 32, true}, rows, nothing).values[n]));
  hessian[5 * n + 5] = NAN;
  CHECK_THROWS_AS(make_error_feedback(hessian, n, false, pool), failure);
}
