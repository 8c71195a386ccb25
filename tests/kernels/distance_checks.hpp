// Attention with learned numbers for distances, against its definition; shared by the tests of backends.
#pragma once

#include "kernels/distance_attention.hpp"
#include "tests/kernels/support.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace troupe::kernels::testing {

struct distance_case {
  int heads = 4, kv_heads = 2, dim = 16, width = 3, extent = 5, window = 0, tokens = 300;
  kv_type type = kv_type::f32;

  std::size_t columns() const { return std::size_t(heads + 2 * kv_heads) * std::size_t(dim); }
  std::string name() const {
    return std::to_string(heads) + ":" + std::to_string(kv_heads) + " x " + std::to_string(dim) + ", " +
      std::to_string(width) + " rows of " + std::to_string(extent) + ", window " + std::to_string(window) + ", " +
      to_string(type);
  }
};

/// Rows of a sequence, and numbers of distances.
struct distance_rows {
  distance_case c;
  std::vector<float> qkv, mixes, numbers, rope;

  distance_rows(const distance_case& c, unsigned seed) : c(c) {
    generator random(seed);
    qkv = random.normal(std::size_t(c.tokens) * c.columns());
    mixes = random.normal(std::size_t(c.tokens) * std::size_t(c.heads * c.width));
    numbers = random.normal(std::size_t(c.width) * std::size_t(c.extent));
    for (int t = 0; t < c.tokens; ++t)
      for (int i = 0; i < c.dim; ++i)
        rope.push_back(i < c.dim / 2 ? 1.0f : 0.0f); // which turns nothing
  }

  std::vector<double> head(int row, int first) const {
    const auto at = qkv.begin() +
      static_cast<std::ptrdiff_t>(std::size_t(row) * c.columns() + std::size_t(first * c.dim));
    return {at, at + c.dim};
  }
};

/// Floats in a device's memory, as rows.
struct distance_memory {
  buffer memory;
  std::size_t columns;

  distance_memory(backend& on, const std::vector<float>& values, std::size_t columns)
    : memory(on.upload(values)), columns(columns) {}

  tensor some(int first, int rows) const {
    return {static_cast<float*>(memory.get()) + std::size_t(first) * columns, dtype::f32, std::size_t(rows), columns,
            columns};
  }
};

/// Rows of a case in a device's memory, with a cache whose blocks are anywhere.
struct distance_run {
  backend& device;
  const distance_rows& of;
  std::vector<std::int32_t> table;
  std::unique_ptr<kv_cache> cache;
  distance_memory qkv, mixes, out;
  buffer numbers, rope;
  attention_scores scores;

  distance_run(backend& device, const distance_rows& of, unsigned seed)
    : device(device),
      of(of),
      table(std::size_t((of.c.tokens + block_tokens - 1) / block_tokens + 2)),
      cache(device.make_kv_cache({1, of.c.kv_heads, of.c.dim, of.c.type, table.size()})),
      qkv(device, of.qkv, of.c.columns()),
      mixes(device, of.mixes, std::size_t(of.c.heads * of.c.width)),
      out(device, std::vector<float>(std::size_t(of.c.tokens) * width(), std::nanf("")), width()),
      numbers(device.upload(distance_table(of.numbers, of.c.width, of.c.extent))),
      rope(device.upload(of.rope)),
      scores{1 / float(of.c.dim), of.c.window} {
    std::iota(table.begin(), table.end(), 0);
    generator random(seed);
    std::shuffle(table.begin(), table.end(), random.engine);
  }

  std::size_t width() const { return std::size_t(of.c.heads * of.c.dim); }

  void write(int first, int rows, const batch& step) {
    device.rope_write_kv(qkv.some(first, rows), of.c.heads, {}, static_cast<const float*>(rope.get()), *cache, 0, step);
  }

  /// Rows of tensors, whichever tokens they are.
  void attend(const tensor& to, const tensor& q, const tensor& mixed, const batch& step) {
    dynamic_cast<distance_attention&>(device).attend_by_distance(
      to, q, of.c.heads, scores, {mixed, static_cast<const float*>(numbers.get()), of.c.width, of.c.extent}, *cache, 0,
      step);
  }

  void run(int first, int rows) {
    const sequence_rows who{0, rows, first, 0, first + rows};
    const batch step{{&who, 1}, table};
    write(first, rows, step);
    attend(out.some(first, rows), qkv.some(first, rows), mixes.some(first, rows), step);
  }

  std::vector<float> read() {
    std::vector<float> got(std::size_t(of.c.tokens) * width());
    device.download(got.data(), out.some(0, of.c.tokens));
    return got;
  }
};

/// What each row gives, written and attended to in chunks; `heads` * `dim` columns.
inline std::vector<float> attend_in_chunks(backend& device, const distance_rows& of, const std::vector<int>& chunks,
                                           unsigned seed, float threshold = 0) {
  distance_run all(device, of, seed);
  all.scores.threshold = threshold;
  int first = 0;
  for (const int rows : chunks) {
    all.run(first, rows);
    first += rows;
  }
  REQUIRE(first == of.c.tokens);
  return all.read();
}

inline std::vector<int> distance_chunks(int n, generator& random) {
  std::vector<int> chunks;
  while (n > 0) {
    chunks.push_back(std::min(n, 1 + random.below(random.below(2) == 0 ? 3 : 60)));
    n -= chunks.back();
  }
  return chunks;
}

/// Compares what every row gives with the reference, within `relative` of the largest value.
inline void check_distances(const distance_rows& of, const std::vector<float>& got, double relative,
                            const std::string& what) {
  const auto& c = of.c;
  std::vector<std::vector<std::vector<double>>> keys(std::size_t(c.kv_heads)), values = keys;
  std::vector<double> want;
  double largest = 0;
  for (int t = 0; t < c.tokens; ++t) {
    for (int h = 0; h < c.kv_heads; ++h) {
      keys[std::size_t(h)].push_back(of.head(t, c.heads + h));
      values[std::size_t(h)].push_back(of.head(t, c.heads + c.kv_heads + h));
      for (const double v : values[std::size_t(h)].back())
        largest = std::max(largest, std::abs(v));
    }
    for (int h = 0; h < c.heads; ++h) {
      const auto mix = of.mixes.begin() + (std::ptrdiff_t(t) * c.heads + h) * c.width;
      const auto kv = std::size_t(h / (c.heads / c.kv_heads));
      const auto from = std::size_t(c.window > 0 ? std::max(0, t + 1 - c.window) : 0);
      const auto o = reference::distance_attention(of.head(t, h), keys[kv], values[kv], from, std::size_t(t) + 1,
                                                   1.0 / c.dim, {mix, mix + c.width}, of.numbers);
      want.insert(want.end(), o.begin(), o.end());
    }
  }
  check_close({got.begin(), got.end()}, want, std::vector<double>(want.size(), relative * largest), what);
}

} // namespace troupe::kernels::testing
