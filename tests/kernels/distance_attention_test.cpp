// Attention whose scores have learned numbers for distances: against the reference, and the same bits under every schedule
// and on every number of ranks.
#include "kernels/distance_attention.hpp"
#include "tests/kernels/sharded/sharded_support.hpp"
#include "tests/kernels/support.hpp"

#include <algorithm>
#include <numeric>

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

namespace {

struct distance_case {
  int heads = 4, kv_heads = 2, dim = 16, width = 3, extent = 5, window = 0, tokens = 300;
  kv_type type = kv_type::f32;

  std::size_t columns() const { return std::size_t(heads + 2 * kv_heads) * std::size_t(dim); }
  std::string name(isa target) const {
    return std::string(to_string(target)) + " " + std::to_string(heads) + ":" + std::to_string(kv_heads) + " x " +
      std::to_string(dim) + ", " + std::to_string(width) + " rows of " + std::to_string(extent) + ", window " +
      std::to_string(window) + ", " + to_string(type);
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

/// What each row gives, written and attended to in chunks; `heads` * `dim` columns of f32.
std::vector<float> attend_in_chunks(backend& device, const distance_rows& of, const std::vector<int>& chunks,
                                    unsigned seed, float threshold = 0) {
  const auto& c = of.c;
  const int blocks = (c.tokens + block_tokens - 1) / block_tokens + 2;
  const auto cache = device.make_kv_cache({1, c.kv_heads, c.dim, c.type, std::size_t(blocks)});
  std::vector<std::int32_t> table(std::size_t(blocks), 0);
  std::iota(table.begin(), table.end(), 0);
  generator random(seed);
  std::shuffle(table.begin(), table.end(), random.engine);
  const auto numbers = distance_table(of.numbers, c.width, c.extent);
  const auto width = std::size_t(c.heads * c.dim), mixed = std::size_t(c.heads * c.width);
  std::vector<float> out(std::size_t(c.tokens) * width, std::nanf("")), qkv = of.qkv, mixes = of.mixes;
  attention_scores scores{1 / float(c.dim), c.window};
  scores.threshold = threshold;
  int first = 0;
  for (const int rows : chunks) {
    const auto at = std::size_t(first), count = std::size_t(rows);
    const sequence_rows who{0, rows, first, 0, first + rows};
    const batch step{{&who, 1}, table};
    const tensor in{&qkv[at * c.columns()], dtype::f32, count, c.columns(), c.columns()};
    device.rope_write_kv(in, c.heads, {}, of.rope.data(), *cache, 0, step);
    dynamic_cast<distance_attention&>(device).attend_by_distance(
      {&out[at * width], dtype::f32, count, width, width}, in, c.heads, scores,
      {{&mixes[at * mixed], dtype::f32, count, mixed, mixed}, numbers.data(), c.width, c.extent}, *cache, 0, step);
    first += rows;
  }
  REQUIRE(first == c.tokens);
  return out;
}

std::vector<int> distance_chunks(int n, generator& random) {
  std::vector<int> chunks;
  while (n > 0) {
    chunks.push_back(std::min(n, 1 + random.below(random.below(2) == 0 ? 3 : 60)));
    n -= chunks.back();
  }
  return chunks;
}

const distance_case distance_cases[] = {
  {},
  {.width = 1, .extent = 1},
  {.heads = 3, .kv_heads = 3, .dim = 24, .width = 8, .extent = 64, .window = 64},
  {.heads = 6, .kv_heads = 2, .width = 16, .extent = 17, .window = 40},
  {.heads = 7, .kv_heads = 1, .dim = 64, .width = 5, .extent = 300, .tokens = 700}, // more than a partition
  {.heads = 2, .kv_heads = 2, .dim = 128, .width = 16, .extent = 1000, .tokens = 270},
};

} // namespace

TEST_CASE("Distances: attention agrees with the reference for every target and cache type") {
  for (const isa target : tested_isas())
    for (auto c : distance_cases)
      for (const kv_type type : {kv_type::f32, kv_type::bf16, kv_type::int8}) {
        c.type = type;
        const distance_rows of(c, 3);
        const auto got = attend_in_chunks(*make_backend(target), of, {c.tokens}, 1);
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
        // As in attention_test.cpp; scores are up to about sqrt(width) * 4 here.
        const double relative = type == kv_type::f32 ? 400 * unit(dtype::f32)
          : type == kv_type::bf16                    ? 2 * unit(dtype::bf16)
                                                     : 4 * unit(dtype::bf16);
        check_close({got.begin(), got.end()}, want, std::vector<double>(want.size(), relative * largest),
                    c.name(target));
      }
}

TEST_CASE("Distances: the same bits at once, in chunks, with any threads, block table and ranks") {
  for (const isa target : tested_isas())
    for (auto c : distance_cases)
      for (const kv_type type : {kv_type::f32, kv_type::bf16, kv_type::int8}) {
        c.type = type;
        const distance_rows of(c, 5);
        generator random(7);
        const auto whole = attend_in_chunks(*make_backend(target, 1), of, {c.tokens}, 1);
        const auto what = c.name(target);
        CHECK_MESSAGE(attend_in_chunks(*make_backend(target, 3), of, {c.tokens}, 2) == whole, what, ", three threads");
        CHECK_MESSAGE(attend_in_chunks(*make_backend(target, 2), of, distance_chunks(c.tokens, random), 3) == whole,
                      what, ", in chunks");
        for (const std::size_t ranks : {2, 3})
          CHECK_MESSAGE(attend_in_chunks(*make_ranks(target, ranks), of, distance_chunks(c.tokens, random), 4) == whole,
                        what, ", on ", ranks, " ranks");
      }
}

TEST_CASE("Distances: a threshold leaves out what weighs little, under every schedule alike") {
  const auto target = tested_isas().back();
  const distance_rows of({.width = 5, .extent = 300, .tokens = 700}, 9);
  generator random(11);
  const auto exact = attend_in_chunks(*make_backend(target), of, {700}, 1);
  const auto whole = attend_in_chunks(*make_backend(target), of, {700}, 1, 0.05f);
  CHECK(whole != exact);
  CHECK(attend_in_chunks(*make_backend(target, 3), of, distance_chunks(700, random), 2, 0.05f) == whole);
  double worst = 0;
  for (std::size_t i = 0; i < exact.size(); ++i)
    worst = std::max(worst, std::abs(double(exact[i]) - whole[i]));
  CHECK(worst < 2);
}

TEST_CASE("Distances: mixes of other heads, and caps, are refused") {
  const auto device = make_backend(tested_isas().back());
  const distance_case c{.tokens = 16};
  const auto cache = device->make_kv_cache({1, c.kv_heads, c.dim, c.type, 1});
  std::vector<float> qkv(c.columns()), mixes(12), out(64);
  const auto table = distance_table(std::vector<float>(15), c.width, c.extent);
  const sequence_rows who{0, 1, 0, 0, 1};
  const std::vector<std::int32_t> blocks{0};
  const auto attend = [&](std::size_t mixed, const attention_scores& scores) {
    dynamic_cast<distance_attention&>(*device).attend_by_distance(
      {out.data(), dtype::f32, 1, 64, 64}, {qkv.data(), dtype::f32, 1, c.columns(), c.columns()}, c.heads, scores,
      {{mixes.data(), dtype::f32, 1, mixed, mixed}, table.data(), c.width, c.extent}, *cache, 0, {{&who, 1}, blocks});
  };
  CHECK_NOTHROW(attend(12, {1}));
  CHECK_THROWS_AS(attend(11, {1}), std::invalid_argument);
  CHECK_THROWS_AS(attend(12, {1, 0, 30}), std::invalid_argument);
}
