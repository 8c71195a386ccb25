// An indexer's choice by its definition, for the tests of CPUs and of GPUs: products in double precision, and sorts of all
// that a row sees.
#pragma once

#include "tests/kernels/support.hpp"

#include <algorithm>
#include <numeric>
#include <span>

namespace troupe::kernels::testing {

inline constexpr int index_heads = 19, index_dim = 24;

/// Rows of `heads` queries and a key, of small whole numbers: products are exact, many are alike, and many negative.
inline std::vector<float> whole_number_rows(generator& random, int tokens, int heads, int sparse) {
  std::vector<float> rows;
  for (int i = 0; i < tokens * (heads + 1) * index_dim; ++i)
    rows.push_back(float(random.below(sparse) == 0 ? random.below(5) - 2 : 0));
  return rows;
}

/// Products of a row's query of one head with the keys that it sees.
inline std::vector<double> index_products(const std::vector<float>& rows, int heads, int row, int head) {
  const std::size_t columns = std::size_t(heads + 1) * index_dim;
  std::vector<double> products;
  for (int t = 0; t <= row; ++t) {
    double dot = 0;
    for (std::size_t d = 0; d < index_dim; ++d)
      dot += double(rows[std::size_t(row) * columns + std::size_t(head) * index_dim + d]) *
        rows[std::size_t(t) * columns + std::size_t(heads) * index_dim + d];
    products.push_back(dot);
  }
  return products;
}

/// Scores of the positions that a row sees; `weights` [rows, index_heads].
inline std::vector<double> index_scores(const std::vector<float>& rows, const std::vector<float>& weights, int row) {
  std::vector<double> scores(std::size_t(row) + 1);
  for (int h = 0; h < index_heads; ++h) {
    const auto products = index_products(rows, index_heads, row, h);
    for (std::size_t t = 0; t < scores.size(); ++t)
      scores[t] += weights[std::size_t(row * index_heads + h)] * std::max(products[t], 0.0);
  }
  return scores;
}

/// The places of the highest numbers, of equal ones the first, ascending.
inline std::vector<std::int32_t> highest_places(const std::vector<double>& scores, int most) {
  std::vector<std::int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int a, int b) { return scores[std::size_t(a)] > scores[std::size_t(b)]; });
  order.resize(std::size_t(most));
  std::ranges::sort(order);
  return order;
}

/// Whether one more number would have had as good a claim to be among the highest.
inline bool has_tie(std::vector<double> scores, int most) {
  std::ranges::sort(scores, std::greater<>());
  return scores[std::size_t(most) - 1] == scores[std::size_t(most)];
}

/// By how much the highest score that was not picked exceeds the lowest that was.
inline double regret(const std::vector<double>& scores, std::span<const std::int32_t> picked) {
  double least = 1e9, best = -1e9;
  for (std::size_t t = 0; t < scores.size(); ++t)
    if (std::ranges::binary_search(picked, std::int32_t(t)))
      least = std::min(least, scores[t]);
    else
      best = std::max(best, scores[t]);
  return best - least;
}

} // namespace troupe::kernels::testing
