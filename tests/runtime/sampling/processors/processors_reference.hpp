// The samplers of runtime/sampling/processors in readable code: probabilities in a vector, sorts, quadratic searches.
// What they keep and which token they draw must be the same.
#pragma once

#include "runtime/sampling/philox.hpp"
#include "runtime/sampling/sampling_params.hpp"
#include "runtime/sampling/vector_passes.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

namespace troupe::reference {

/// Logits of all tokens; minus infinity for those that cannot be chosen.
using logits_row = std::vector<float>;

inline constexpr float no_logit = -std::numeric_limits<float>::infinity();

inline float largest(const logits_row& row) { return *std::max_element(row.begin(), row.end()); }

/// As fractions of 2^-40 of the likeliest, as the sampler has them.
inline std::vector<double> masses(const logits_row& row) {
  std::vector<double> result;
  const auto max = largest(row);
  for (const auto x : row)
    result.push_back(std::nearbyint(static_cast<double>(sampling::exp_nonpositive(x - max)) * 0x1p40));
  return result;
}

inline std::vector<double> probabilities(const logits_row& row) {
  auto p = masses(row);
  const auto total = std::accumulate(p.begin(), p.end(), 0.);
  for (auto& x : p)
    x /= total;
  return p;
}

/// In nats.
inline std::vector<double> surprises(const logits_row& row) {
  const auto m = masses(row);
  const auto log_total = std::log(std::accumulate(m.begin(), m.end(), 0.) / 0x1p40);
  const auto max = static_cast<double>(largest(row));
  std::vector<double> result;
  for (const auto x : row)
    result.push_back(log_total - (static_cast<double>(x) - max));
  return result;
}

inline double entropy(const logits_row& row) {
  const auto p = probabilities(row), s = surprises(row);
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i)
    sum += p[i] > 0 ? p[i] * s[i] : 0;
  return sum;
}

template <class Keep>
logits_row kept_where(const logits_row& row, Keep keep) {
  auto result = row;
  for (std::size_t i = 0; i < row.size(); ++i)
    if (!keep(i))
      result[i] = no_logit;
  return result;
}

inline logits_row typical(const logits_row& row, double p) {
  const auto share = probabilities(row), s = surprises(row);
  const auto h = entropy(row);
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < row.size(); ++i)
    if (share[i] > 0)
      order.push_back(i);
  const auto distance = [&](std::size_t i) { return std::abs(s[i] - h); };
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return distance(a) < distance(b); });
  double sum = 0, edge = 0;
  for (const auto i : order)
    if (sum < p) {
      sum += share[i];
      edge = distance(i);
    }
  return kept_where(row, [&](std::size_t i) { return share[i] > 0 && distance(i) <= edge; });
}

inline logits_row above(const logits_row& row, double least) {
  const auto share = probabilities(row);
  return kept_where(row, [&, max = largest(row)](std::size_t i) { return share[i] >= least || row[i] == max; });
}

inline logits_row epsilon(const logits_row& row, double e) { return e > 0 ? above(row, e) : row; }

inline logits_row eta(const logits_row& row, double e) {
  return e > 0 ? above(row, std::min(e, std::sqrt(e) * std::exp(-entropy(row)))) : row;
}

inline logits_row top_a(const logits_row& row, double a) {
  const auto share = probabilities(row);
  const auto most = *std::max_element(share.begin(), share.end());
  return a > 0 ? above(row, a * most * most) : row;
}

inline logits_row top_n_sigma(const logits_row& row, double n) {
  if (n <= 0)
    return row;
  double sum = 0, squares = 0, count = 0;
  for (const auto x : row)
    if (x > no_logit)
      sum += static_cast<double>(x), ++count;
  for (const auto x : row)
    if (x > no_logit)
      squares += std::pow(static_cast<double>(x) - sum / count, 2);
  const auto floor = static_cast<double>(largest(row)) - n * std::sqrt(squares / count);
  return kept_where(row, [&](std::size_t i) { return static_cast<double>(row[i]) >= floor; });
}

inline logits_row xtc(const logits_row& row, double threshold) {
  const auto share = probabilities(row);
  std::vector<std::size_t> top;
  for (std::size_t i = 0; i < row.size(); ++i)
    if (share[i] >= threshold)
      top.push_back(i);
  std::stable_sort(top.begin(), top.end(), [&](auto a, auto b) { return row[a] > row[b]; });
  if (top.size() < 2)
    return row;
  return kept_where(row, [&](std::size_t i) { return share[i] < threshold || i == top.back(); });
}

/// The longest end of `text` that was followed by `next` before, without breakers; 0 if none.
inline int longest_repeat(std::span<const token_id> text, token_id next, const token_set& breakers) {
  int longest = 0;
  for (std::size_t end = 1; end < text.size(); ++end) {
    if (text[end] != next || breakers.contains(next))
      continue;
    int length = 0;
    while (static_cast<std::size_t>(length) < end &&
           text[end - 1 - static_cast<std::size_t>(length)] ==
             text[text.size() - 1 - static_cast<std::size_t>(length)] &&
           !breakers.contains(text[text.size() - 1 - static_cast<std::size_t>(length)]))
      ++length;
    longest = std::max(longest, length);
  }
  return longest;
}

inline bool completes_ngram(std::span<const token_id> text, token_id next, std::size_t n) {
  std::vector<token_id> gram(text.end() - static_cast<std::ptrdiff_t>(std::min(text.size(), n - 1)), text.end());
  gram.push_back(next);
  return gram.size() == n && std::search(text.begin(), text.end(), gram.begin(), gram.end()) != text.end();
}

} // namespace troupe::reference
