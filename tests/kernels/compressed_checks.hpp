// Attention over compressed keys against its definition in double; shared by the tests of backends.
#pragma once

#include "kernels/compressed_attention.hpp"
#include "tests/kernels/support.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>

namespace troupe::kernels::testing {

inline constexpr int ce_tokens = 330, ce_heads = 5, ce_dim = 24, ce_pairs = 5, ce_window = 21;
inline constexpr int ce_index_heads = 7, ce_index_dim = 16;
inline constexpr float ce_eps = 1e-5f;
inline constexpr kv_type ce_types[] = {kv_type::f32, kv_type::bf16, kv_type::int8, kv_type::fp8};

using ce_floats = std::vector<float>;

/// Angles of heads of `dim`, of which some pairs turn.
inline ce_floats ce_turning(int dim) {
  ce_floats rope;
  for (int t = 0; t < ce_tokens; ++t)
    for (int i = 0; i < dim; ++i) {
      const int pair = i % (dim / 2);
      const double angle = pair < ce_pairs ? t * std::pow(100.0, -double(pair) / ce_pairs) : 0;
      rope.push_back(static_cast<float>(i < dim / 2 ? std::cos(angle) : std::sin(angle)));
    }
  return rope;
}

inline std::vector<double> ce_rotated(std::span<const double> x, const float* angles) {
  const auto half = x.size() / 2;
  std::vector<double> to(x.begin(), x.end());
  for (std::size_t i = 0; i < half; ++i) {
    to[i] = x[i] * angles[i] - x[half + i] * angles[half + i];
    to[half + i] = x[half + i] * angles[i] + x[i] * angles[half + i];
  }
  return to;
}

/// What tokens give for entries, and how these are made of it.
struct ce_inputs {
  int dim, rate;
  bool overlaps;
  ce_floats rows; // [tokens, given and gates]
  ce_floats bias, norm, angles;

  ce_inputs(generator& random, int dim, int rate, bool overlaps)
    : dim(dim),
      rate(rate),
      overlaps(overlaps),
      rows(random.normal(ce_tokens * 2 * width())),
      bias(random.normal(std::size_t(rate) * width())),
      norm(random.normal(std::size_t(dim))),
      angles(ce_turning(dim)) {}

  std::size_t width() const { return std::size_t(dim) * (overlaps ? 2 : 1); }

  std::vector<double> entry(int group) const {
    std::vector<double> to(static_cast<std::size_t>(dim));
    double squares = 0;
    for (std::size_t d = 0; d < to.size(); ++d) {
      double sum = 0;
      for (int t = (group - (overlaps && group > 0 ? 1 : 0)) * rate; t < (group + 1) * rate; ++t) {
        const auto column = (overlaps && t >= group * rate ? std::size_t(dim) : 0) + d;
        const auto* row = rows.data() + std::size_t(t) * 2 * width();
        const double weight = std::exp(double(row[width() + column]) + bias[std::size_t(t % rate) * width() + column]);
        sum += weight;
        to[d] += weight * row[column];
      }
      to[d] /= sum;
      squares += to[d] * to[d];
    }
    for (std::size_t d = 0; d < to.size(); ++d)
      to[d] *= norm[d] / std::sqrt(squares / dim + double(ce_eps));
    return ce_rotated(to, angles.data() + std::size_t(group * rate) * std::size_t(dim));
  }
};

struct ce_kind {
  int rate;
  bool indexed;
  int top = 9; // entries that are chosen
};

/// Layers of the cache: tokens' keys, entries, what these are made of, keys of the indexer, and what they are made of.
struct compressed_case {
  ce_inputs main, index;
  bool indexed;
  int top;
  ce_floats qkv, queries, weights, sinks;

  compressed_case(generator& random, const ce_kind& kind)
    : main(random, ce_dim, kind.rate, kind.indexed),
      index(random, ce_index_dim, kind.rate, true),
      indexed(kind.indexed),
      top(kind.top),
      qkv(random.normal(ce_tokens * (ce_heads + 1) * ce_dim)),
      queries(random.normal(ce_tokens * ce_index_heads * ce_index_dim)),
      weights(random.normal(ce_tokens * ce_index_heads)),
      sinks(random.normal(ce_heads)) {}

  kv_shape shape(kv_type type, std::size_t blocks) const {
    kv_shape made{5, 2, ce_dim, type, blocks};
    made.own = {
      {1, ce_dim, false}, {1, ce_dim, false}, {indexed ? 2 : 1, ce_dim}, {1, ce_index_dim, false}, {2, ce_index_dim}};
    return made;
  }
};

/// Rows of all tokens, in a device's memory.
struct ce_rows {
  buffer memory;
  std::size_t columns;

  ce_rows(backend& on, const ce_floats& values) : memory(on.upload(values)), columns(values.size() / ce_tokens) {}

  tensor some(int first, int rows) const {
    return {static_cast<float*>(memory.get()) + std::size_t(first) * columns, dtype::f32, std::size_t(rows), columns,
            columns};
  }
};

/// ce_inputs, in a device's memory.
struct ce_making {
  const ce_inputs& of;
  ce_rows rows;
  buffer bias, norm, angles;

  ce_making(backend& on, const ce_inputs& of)
    : of(of), rows(on, of.rows), bias(on.upload(of.bias)), norm(on.upload(of.norm)), angles(on.upload(of.angles)) {}

  static const float* floats(const buffer& b) { return static_cast<const float*>(b.get()); }
  entry_making how() const { return {of.rate, of.overlaps, floats(bias), floats(norm), ce_eps, floats(angles)}; }
};

struct ce_computed {
  ce_floats over = ce_floats(ce_tokens * ce_heads * ce_dim), restored = ce_floats(ce_tokens * ce_heads * ce_dim);
  position_choice chosen;
};

/// How a test reads what a backend has chosen.
using ce_reader = std::function<std::vector<std::int32_t>(const position_choice&)>;

inline std::vector<std::int32_t> ce_on_host(const position_choice& choice) { return choice.positions; }

inline ce_computed ce_run(backend& on, const compressed_case& of, kv_type type, std::span<const int> chunks,
                          unsigned seed, const ce_reader& read = ce_on_host) {
  auto& compressed = dynamic_cast<compressed_attention&>(on);
  std::vector<std::int32_t> table((ce_tokens + block_tokens - 1) / block_tokens);
  std::iota(table.begin(), table.end(), 1);
  std::shuffle(table.begin(), table.end(), generator(seed).engine);
  const auto cache = on.make_kv_cache(of.shape(type, table.size() + 2));
  const auto sinks = on.upload(of.sinks);
  const ce_making main(on, of.main), index(on, of.index);
  const ce_rows all_qkv(on, of.qkv), all_queries(on, of.queries), weights(on, of.weights),
    all_over(on, ce_floats(ce_tokens * ce_heads * ce_dim)), restored(on, ce_floats(ce_tokens * ce_heads * ce_dim));
  ce_computed to;
  to.chosen.reset(ce_tokens, of.top);
  int first = 0;
  for (const int count : chunks) {
    const sequence_rows who{0, count, first, 0, first + count};
    const batch step{{&who, 1}, table};
    const auto qkv = all_qkv.some(first, count);
    on.rope_write_kv(qkv, ce_heads, {}, main.how().angles, *cache, 0, step);
    on.rope_write_kv(main.rows.some(first, count), 0, {}, {}, *cache, 2, step);
    compressed.make_entries(main.how(), *cache, 2, 1, step);
    position_choice chosen;
    chosen.reset(std::size_t(count), of.top);
    if (of.indexed) {
      on.rope_write_kv(index.rows.some(first, count), 0, {}, {}, *cache, 4, step);
      compressed.make_entries(index.how(), *cache, 4, 3, step);
      const auto queries = all_queries.some(first, count);
      on.rope_write_kv(queries, ce_index_heads, {}, index.how().angles, *cache, 3, step);
      compressed.choose_entries(chosen, queries, weights.some(first, count), ce_index_heads, of.index.rate, *cache, 3,
                                step);
      const auto got = read(chosen);
      for (int row = 0; row < count; ++row) // others have chosen nothing
        if ((first + row + 1) / of.index.rate > of.top)
          std::copy_n(got.begin() + row * of.top, of.top, to.chosen.of(std::size_t(first + row)));
    }
    auto q = qkv;
    q.cols = ce_heads * ce_dim;
    attention_scores scores{0.3f, 0, 0, nullptr, ce_making::floats(sinks)};
    const entry_view seen{0, ce_window, 1, of.main.rate, of.indexed ? &chosen : nullptr};
    const auto over = all_over.some(first, count);
    compressed.attend_entries(over, q, ce_heads, scores, seen, *cache, step);
    compressed.undo_rotation(restored.some(first, count), over, ce_heads, ce_pairs, main.how().angles, step);
    first += count;
    on.download(to.over.data(), all_over.some(0, ce_tokens));
  }
  REQUIRE(first == ce_tokens);
  on.download(to.restored.data(), restored.some(0, ce_tokens));
  return to;
}

inline std::vector<double> ce_as_doubles(const float* x, std::size_t count) { return {x, x + count}; }

inline double ce_dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

/// The attention of one row's head, in the order of checkpoints: what does not turn, then pairs.
inline std::vector<double> ce_expected(const compressed_case& of, const position_choice& chosen, int row, int head,
                                       const std::vector<std::vector<double>>& tokens,
                                       const std::vector<std::vector<double>>& entries) {
  const auto* angles = of.main.angles.data() + std::size_t(row) * ce_dim;
  const auto q = ce_rotated(
    ce_as_doubles(of.qkv.data() + (std::size_t(row) * (ce_heads + 1) + std::size_t(head)) * ce_dim, ce_dim), angles);
  std::vector<const std::vector<double>*> seen;
  for (int t = std::max(0, row + 1 - ce_window); t <= row; ++t)
    seen.push_back(&tokens[std::size_t(t)]);
  const int ended = (row + 1) / of.main.rate;
  for (int e = 0; e < ended; ++e)
    if (!of.indexed || ended <= of.top ||
        std::ranges::count(std::span(chosen.of(std::size_t(row)), std::size_t(of.top)), (e + 1) * of.main.rate - 1) ==
          1)
      seen.push_back(&entries[std::size_t(e)]);
  double sum = std::exp(double(of.sinks[std::size_t(head)]));
  std::vector<double> mean(ce_dim);
  for (const auto* key : seen) {
    const double weight = std::exp(0.3f * ce_dot(q, *key));
    sum += weight;
    for (std::size_t d = 0; d < ce_dim; ++d)
      mean[d] += weight * (*key)[d];
  }
  std::vector<double> result(ce_dim);
  constexpr std::size_t half = ce_dim / 2, plain = ce_dim - 2 * ce_pairs;
  for (std::size_t i = 0; i < half; ++i) {
    const double one = (mean[i] * angles[i] + mean[half + i] * angles[half + i]) / sum,
                 other = (mean[half + i] * angles[i] - mean[i] * angles[half + i]) / sum;
    result[i < ce_pairs ? plain + 2 * i : i - ce_pairs] = one;
    result[i < ce_pairs ? plain + 2 * i + 1 : half - ce_pairs + i - ce_pairs] = other;
  }
  return result;
}

/// Whether results in f32 are what the definitions say.
inline void ce_check(const compressed_case& of, const ce_computed& got) {
  const int rate = of.main.rate;
  const bool indexed = of.indexed;
  std::vector<std::vector<double>> tokens, entries, keys;
  for (int t = 0; t < ce_tokens; ++t)
    tokens.push_back(
      ce_rotated(ce_as_doubles(of.qkv.data() + (std::size_t(t) * (ce_heads + 1) + ce_heads) * ce_dim, ce_dim),
                 of.main.angles.data() + std::size_t(t) * ce_dim));
  for (int e = 0; e < ce_tokens / rate; ++e) {
    entries.push_back(of.main.entry(e));
    keys.push_back(of.index.entry(e));
  }
  double worst = 0, worst_choice = 0;
  for (int row = 0; row < ce_tokens; ++row) {
    const int ended = (row + 1) / rate;
    if (indexed && ended > of.top) {
      const std::span chosen(got.chosen.of(std::size_t(row)), std::size_t(of.top));
      CHECK(std::ranges::is_sorted(chosen));
      double least = 1e30, most_left = -1e30;
      for (int e = 0; e < ended; ++e) {
        double score = 0;
        for (std::size_t h = 0; h < ce_index_heads; ++h) {
          const auto q = ce_rotated(
            ce_as_doubles(of.queries.data() + (std::size_t(row) * ce_index_heads + h) * ce_index_dim, ce_index_dim),
            of.index.angles.data() + std::size_t(row) * ce_index_dim);
          score += double(of.weights[std::size_t(row) * ce_index_heads + h]) *
            std::max(0.0, ce_dot(q, keys[std::size_t(e)]));
        }
        if (std::ranges::count(chosen, (e + 1) * rate - 1) == 1)
          least = std::min(least, score);
        else
          most_left = std::max(most_left, score);
      }
      CHECK(least < 1e30);
      worst_choice = std::max(worst_choice, most_left - least);
    }
    for (int head = 0; head < ce_heads; ++head) {
      const auto want = ce_expected(of, got.chosen, row, head, tokens, entries);
      for (std::size_t d = 0; d < ce_dim; ++d)
        worst = std::max(
          worst, std::abs(want[d] - got.restored[(std::size_t(row) * ce_heads + std::size_t(head)) * ce_dim + d]));
    }
  }
  CHECK(worst < 2e-5);
  CHECK(worst_choice < 1e-4);
}

// The last two attend to more than a partition (256).
inline const std::vector<ce_kind> ce_kinds{{4, true}, {16, false}, {5, true}, {40, false}, {1, false}, {1, true, 280}};
inline const std::vector<int> ce_whole{ce_tokens}, ce_parts{1, 2, 3, 9, 1, 1, 63, 140, 1, 109};

} // namespace troupe::kernels::testing
