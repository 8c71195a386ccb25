// Weights as blocks with few bits: how large the error is, what importances do, and values that have no place.
#include "runtime/checkpoint/quantised/quantise_blocks.hpp"

#include "kernels/formats/weight_groups.hpp"
#include "runtime/checkpoint/quantised/fit_blocks.hpp"
#include "runtime/checkpoint/weight_values.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

using namespace troupe;
using kernels::weight_format;

namespace {

constexpr std::size_t fitted_inputs = 4096;

std::vector<float> normal_row(unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> row(fitted_inputs);
  for (auto& x : row)
    x = normal(random);
  return row;
}

std::vector<float> through(weight_format format, const std::vector<float>& row, const float* importance = nullptr) {
  std::vector<std::uint8_t> bytes(row_bytes(format, row.size()));
  quantise_row(format, row.data(), row.size(), bytes.data(), importance);
  std::vector<float> back(row.size());
  to_floats(format, bytes.data(), row.size(), back.data());
  return back;
}

/// Root mean square of the error, relative to that of the row; each input's square times its weight.
double error_through(weight_format format, const std::vector<float>& row, const std::vector<float>& weights = {},
                     const float* importance = nullptr) {
  const auto back = through(format, row, importance);
  double error = 0, all = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const double w = weights.empty() ? 1 : weights[i];
    error += w * std::pow(double(back[i]) - row[i], 2);
    all += w * std::pow(double(row[i]), 2);
  }
  return std::sqrt(error / all);
}

/// All that are searched for their least error.
std::vector<weight_format> searched_formats() {
  std::vector<weight_format> result;
  for (const auto& traits : kernels::weight_formats)
    if (has_groups(traits.format) && can_be_written(traits.format))
      result.push_back(traits.format);
  return result;
}

} // namespace

TEST_CASE("Normally distributed weights lose as little as their bits allow") {
  // A quantiser with the best levels for a normal distribution and as many codes, but no scales, would have
  // 0.343 (2 bits), 0.186 (3), 0.0975 (4), 0.050 (5) and 0.025 (6). Scales of small groups do better with few codes.
  const std::pair<weight_format, double> most[] = {
    {weight_format::q2_k, 0.285},   {weight_format::q3_k, 0.158}, {weight_format::q4_k, 0.073},
    {weight_format::q5_k, 0.0365},  {weight_format::q6_k, 0.019}, {weight_format::iq4_nl, 0.077},
    {weight_format::iq4_xs, 0.078}, {weight_format::q4_0, 0.088}, {weight_format::q4_1, 0.072},
    {weight_format::q5_0, 0.044},   {weight_format::q5_1, 0.036}, {weight_format::q8_0, 0.0056}};
  const auto row = normal_row(1);
  for (const auto& [format, limit] : most) {
    CAPTURE(to_string(format));
    const double error = error_through(format, row);
    CHECK(error < limit);
    CHECK(error > limit / 2);
  }
}

TEST_CASE("Errors go where they matter least") {
  const auto row = normal_row(2);
  std::vector<float> importance(row.size());
  std::mt19937 random(3);
  std::exponential_distribution<float> spread(1);
  for (auto& v : importance)
    v = std::pow(spread(random), 4.0f); // as uneven as activations
  for (const auto format : searched_formats()) {
    if (format == weight_format::q8_0)
      continue; // which is not searched
    CAPTURE(to_string(format));
    CHECK(error_through(format, row, importance, importance.data()) < 0.97 * error_through(format, row, importance));
  }
  // Inputs that were always 0 count little, and none of these values may upset anything.
  auto odd = importance;
  for (std::size_t i = 0; i < odd.size(); i += 3)
    odd[i] = i % 2 == 0 ? 0 : i % 5 == 0 ? INFINITY : -1;
  for (const auto format : searched_formats())
    CHECK(error_through(format, row, {}, odd.data()) < 0.5);
  const std::vector<float> none(row.size());
  for (const auto format : searched_formats())
    CHECK(through(format, row, none.data()) == through(format, row));
}

TEST_CASE("Large weights of inputs that were always 0 keep a scale, the largest that there is if need be") {
  constexpr std::size_t block = 256, unseen = 32; // inputs of a block, and of its part that was always 0
  for (const auto format : {weight_format::q2_k, weight_format::q3_k, weight_format::q4_k, weight_format::q5_k,
                            weight_format::q6_k, weight_format::iq4_xs}) {
    CAPTURE(to_string(format));
    double worst = 0; // relative error of such a part
    for (unsigned seed = 1; seed <= 20; ++seed) {
      auto row = normal_row(seed);
      std::vector<float> importance(row.size(), 1.0f);
      for (std::size_t i = 0; i < row.size(); ++i)
        if (i % block < unseen) {
          row[i] *= 1.5f;
          importance[i] = 0;
        }
      const auto back = through(format, row, importance.data());
      for (std::size_t first = 0; first < row.size(); first += block) {
        double error = 0, all = 0;
        for (std::size_t i = first; i < first + unseen; ++i) {
          error += std::pow(double(back[i]) - row[i], 2);
          all += std::pow(double(row[i]), 2);
        }
        worst = std::max(worst, std::sqrt(error / all));
      }
    }
    CHECK(worst < 0.6);
  }
}

TEST_CASE("Blocks are fitted whatever their weights are") {
  for (const auto format : searched_formats()) {
    CAPTURE(to_string(format));
    const auto block = block_inputs(format);
    std::vector<float> row(fitted_inputs);
    CHECK(through(format, row) == row);                        // zeros
    for (const float value : {1.0f, -1.0f, 3e-3f, 60000.0f}) { // all alike
      std::fill(row.begin(), row.end(), value);
      CHECK(error_through(format, row) < (format == weight_format::q2_k ? 0.03 : 0.02));
    }
    std::fill(row.begin(), row.end(), 0.0f); // one weight alone
    row[5] = -0.75f;
    CHECK(through(format, row)[5] == doctest::Approx(-0.75).epsilon(0.02));
    for (std::size_t i = 0; i < row.size(); ++i) // all of one sign
      row[i] = 1 + 0.1f * float(i % 7);
    CHECK(error_through(format, row) < 0.2);
    for (std::size_t i = 0; i < row.size(); ++i) // far too small for f16
      row[i] = i % 2 == 0 ? 1e-12f : -1e-12f;
    for (const float x : through(format, row))
      CHECK(std::abs(x) <= 1e-6f);
    row = normal_row(4);
    for (const float bad : {INFINITY, -INFINITY, NAN}) { // not numbers: their block alone
      row[block] = bad;
      const auto back = through(format, row);
      CHECK(std::isnan(back[block]));
      for (std::size_t i = 0; i < row.size(); ++i)
        if (i / block != 1)
          CHECK(std::isfinite(back[i]));
    }
  }
}

TEST_CASE("The nearest code of a weight that a block holds is its own") {
  const auto row = normal_row(5);
  for (const auto format : searched_formats()) {
    CAPTURE(to_string(format));
    std::vector<std::uint8_t> bytes(row_bytes(format, row.size()));
    quantise_row(format, row.data(), row.size(), bytes.data());
    for (std::size_t g = 0; g < row.size() / kernels::group_inputs; ++g) {
      const auto group = kernels::stored_group(format, bytes.data(), g);
      float weights[kernels::group_inputs];
      dequantise(group, weights);
      for (std::size_t i = 0; i < kernels::group_inputs; ++i) {
        CHECK(weight_of(group, i) == weights[i]);
        auto same = group;
        same.codes[i] = nearest_code(format, group, i, weights[i]);
        CHECK(weight_of(same, i) == weights[i]);
        same.codes[i] = nearest_code(format, group, i, row[g * kernels::group_inputs + i]);
        CHECK(std::abs(weight_of(same, i) - row[g * kernels::group_inputs + i]) <=
              std::abs(weights[i] - row[g * kernels::group_inputs + i]) * 1.0001f);
      }
    }
  }
}
