#include "runtime/techniques/steering/contrast.hpp"

#include "runtime/support/error.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

namespace troupe {

namespace {

using row = std::vector<double>;

constexpr int most_iterations = 2000;
constexpr double converged = 1e-12; // change of a direction of length 1, squared

row mean_of(const layer_states& states) {
  row sum(states.front().size());
  for (const auto& s : states)
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] += s[i];
  for (auto& x : sum)
    x /= static_cast<double>(states.size());
  return sum;
}

double dot(const row& a, const row& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

/// Makes its length 1. False if it has none.
bool normalise(row& v) {
  const auto length = std::sqrt(dot(v, v));
  if (length == 0)
    return false;
  for (auto& x : v)
    x /= length;
  return true;
}

/// The first principal component about zero, by power iteration in double. Begins at the sum of the rows and the
/// longest of them, of which one at least is not orthogonal to it unless all are zero.
row principal(const std::vector<row>& rows) {
  const auto longest = *std::ranges::max_element(rows, {}, [](const row& r) { return dot(r, r); });
  row v = longest;
  for (const auto& r : rows)
    for (std::size_t i = 0; i < v.size(); ++i)
      v[i] += r[i];
  if (!normalise(v) && !normalise(v = longest))
    return {};
  for (int n = 0; n < most_iterations; ++n) {
    row next(v.size());
    for (const auto& r : rows) {
      const auto along = dot(r, v);
      for (std::size_t i = 0; i < next.size(); ++i)
        next[i] += along * r[i];
    }
    if (!normalise(next))
      break;
    double change = 0;
    for (std::size_t i = 0; i < next.size(); ++i)
      change += (next[i] - v[i]) * (next[i] - v[i]);
    v = std::move(next);
    if (change < converged)
      break;
  }
  return v;
}

std::vector<float> narrowed(const row& v) {
  std::vector<float> result(v.size());
  std::ranges::transform(v, result.begin(), [](double x) { return static_cast<float>(x); });
  const bool any = std::ranges::any_of(result, [](float x) { return x != 0; });
  return any ? result : std::vector<float>();
}

} // namespace

void check_contrast(contrast_method method, std::size_t positive, std::size_t negative) {
  if (positive == 0 || negative == 0)
    throw failure(errc::bad_request,
                  std::string("there are no ") + (positive == 0 ? "positive" : "negative") + " prompts");
  if (method == contrast_method::pca && positive != negative)
    throw failure(errc::bad_request,
                  "pca compares pairs of prompts, but there are " + std::to_string(positive) + " positive and " +
                    std::to_string(negative) + " negative ones");
}

std::vector<float> contrast(contrast_method method, const layer_states& positive, const layer_states& negative) {
  check_contrast(method, positive.size(), negative.size());
  if (method == contrast_method::mean) {
    auto difference = mean_of(positive);
    const auto other = mean_of(negative);
    for (std::size_t i = 0; i < difference.size(); ++i)
      difference[i] -= other[i];
    return narrowed(difference);
  }
  std::vector<row> differences;
  for (std::size_t p = 0; p < positive.size(); ++p) {
    differences.emplace_back(positive[p].begin(), positive[p].end());
    for (std::size_t i = 0; i < differences.back().size(); ++i)
      differences.back()[i] -= negative[p][i];
  }
  auto component = principal(differences);
  double along = 0;
  for (const auto& d : differences)
    along += component.empty() ? 0 : dot(d, component);
  if (along < 0)
    for (auto& x : component)
      x = -x;
  return narrowed(component);
}

} // namespace troupe
