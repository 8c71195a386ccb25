#include "kernels/block_transfer.hpp"
#include "kernels/formats/e4m3.hpp"
#include "tests/kernels/support.hpp"

#include <algorithm>
#include <numeric>

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

namespace {

struct shape {
  int heads, kv_heads, head_dim;
  int columns() const { return (heads + 2 * kv_heads) * head_dim; }
};

std::string name(isa target, const shape& s, kv_type type, int tokens, int window) {
  return std::string(to_string(target)) + " " + std::to_string(s.heads) + ":" + std::to_string(s.kv_heads) + " x " +
    std::to_string(s.head_dim) + " " + to_string(type) + ", " + std::to_string(tokens) + " tokens, window " +
    std::to_string(window);
}

/// A sequence's q, k and v before rotation, and a rope table with a model's angles.
struct sequence {
  shape s;
  int tokens;
  std::vector<float> qkv, rope, q_norm, k_norm;

  sequence(const shape& s, int tokens, unsigned seed) : s(s), tokens(tokens) {
    generator random(seed);
    qkv = random.normal(std::size_t(tokens) * s.columns());
    q_norm = random.normal(s.head_dim);
    k_norm = random.normal(s.head_dim);
    for (int t = 0; t < tokens; ++t)
      for (int part = 0; part < 2; ++part)
        for (int i = 0; i < s.head_dim / 2; ++i) {
          const double angle = t * std::pow(10000.0, -2.0 * i / s.head_dim);
          rope.push_back(static_cast<float>(part == 0 ? std::cos(angle) : std::sin(angle)));
        }
  }
};

/// A backend with a cache full of NaN, and a shuffled block table.
struct machine {
  std::unique_ptr<backend> device;
  std::unique_ptr<kv_cache> cache;
  std::vector<std::int32_t> table;
  shape s;

  machine(isa target, const shape& s, kv_type type, int tokens, int threads = 2, unsigned seed = 1)
    : device(make_backend(target, threads)), s(s) {
    const int blocks = (tokens + block_tokens - 1) / block_tokens + 3;
    kv_shape kv{2, s.kv_heads, s.head_dim, type, static_cast<std::size_t>(blocks)};
    cache = device->make_kv_cache(kv);
    table.resize(blocks);
    std::iota(table.begin(), table.end(), 0);
    std::vector<float> garbage(std::size_t(blocks) * block_tokens * s.columns(), std::nanf(""));
    std::vector<float> rope(std::size_t(blocks) * block_tokens * s.head_dim, std::nanf(""));
    for (int layer = 0; layer < 2; ++layer)
      write(garbage, 0, blocks * block_tokens, {}, rope, layer);
    generator random(seed);
    std::shuffle(table.begin(), table.end(), random.engine);
  }

  void write(std::vector<float>& qkv, int first, int rows, const head_norm& norm, const std::vector<float>& rope,
             int layer = 1) {
    const sequence_rows who{0, rows, first, 0};
    const tensor t{qkv.data(), dtype::f32, std::size_t(rows), std::size_t(s.columns()), std::size_t(s.columns())};
    device->rope_write_kv(t, s.heads, norm, rope.data(), *cache, layer, {{&who, 1}, table});
  }

  /// Writes rows [first, first + rows) of a sequence to the cache and attends to them, `chunk` rows at a time.
  numbers run(const sequence& from, dtype out_type, int window, std::vector<int> chunks, bool norm = false) {
    numbers out(out_type, std::size_t(from.tokens) * s.heads * s.head_dim);
    const std::size_t columns = s.columns(), width = s.heads * s.head_dim;
    int first = 0;
    for (const int rows : chunks) {
      std::vector<float> part(from.qkv.begin() + first * columns, from.qkv.begin() + (first + rows) * columns);
      const head_norm weights{norm ? from.q_norm.data() : nullptr, norm ? from.k_norm.data() : nullptr, 1e-6f};
      write(part, first, rows, weights, from.rope);
      const sequence_rows who{0, rows, first, 0};
      const tensor q{part.data(), dtype::f32, std::size_t(rows), columns, columns};
      const tensor to{static_cast<char*>(out.data()) + first * width * size_of(out_type), out_type, std::size_t(rows),
                      width, width};
      device->attention(to, q, s.heads, 1 / std::sqrt(float(s.head_dim)), window, *cache, 1, {{&who, 1}, table});
      first += rows;
    }
    REQUIRE(first == from.tokens);
    return out;
  }
};

std::vector<double> head_of(const std::vector<float>& row, std::size_t first, int dim) {
  return {row.begin() + first, row.begin() + first + dim};
}

/// The reference's result and the tolerance of the kernels'.
void check_against_reference(const numbers& got, const sequence& from, kv_type stored_as, int window, bool norm,
                             const std::string& what) {
  const auto& s = from.s;
  std::vector<std::vector<std::vector<double>>> keys(s.kv_heads), values(s.kv_heads);
  std::vector<double> want;
  double largest_v = 0;
  for (int t = 0; t < from.tokens; ++t) {
    const std::vector<float> row(from.qkv.begin() + std::size_t(t) * s.columns(),
                                 from.qkv.begin() + std::size_t(t + 1) * s.columns());
    const float* rope = from.rope.data() + std::size_t(t) * s.head_dim;
    const auto prepared = [&](int head, const std::vector<float>& weight) {
      auto x = head_of(row, head * s.head_dim, s.head_dim);
      return reference::rotate(norm ? reference::rms_norm(x, weight.data(), 1e-6) : x, rope);
    };
    const auto stored = [&](std::vector<double> x) {
      double largest = 0;
      for (const double v : x)
        largest = std::max(largest, std::abs(v));
      for (double& v : x)
        if (stored_as == kv_type::bf16)
          v = numbers(dtype::bf16, std::vector<float>{static_cast<float>(v)})[0];
        else if (stored_as == kv_type::int8)
          v = std::nearbyint(v * 127 / largest) * largest / 127;
        else if (stored_as == kv_type::fp8)
          v = reference::to_e4m3(v * 448 / largest) * largest / 448;
      return x;
    };
    for (int h = 0; h < s.kv_heads; ++h) {
      keys[h].push_back(stored(prepared(s.heads + h, from.k_norm)));
      values[h].push_back(stored(head_of(row, (s.heads + s.kv_heads + h) * s.head_dim, s.head_dim)));
      for (const double v : values[h].back())
        largest_v = std::max(largest_v, std::abs(v));
    }
    for (int h = 0; h < s.heads; ++h) {
      const int kv = h / (s.heads / s.kv_heads);
      const std::size_t from_token = window > 0 ? std::max(0, t + 1 - window) : 0;
      const auto o = reference::attention(prepared(h, from.q_norm), keys[kv], values[kv], from_token, t + 1,
                                          1 / std::sqrt(double(s.head_dim)));
      want.insert(want.end(), o.begin(), o.end());
    }
  }
  // A score is off by a few units times sqrt(head_dim) times its magnitude, up to about 10 for normal data. The bound
  // also covers keys and codes that round the other way because the kernel's rotation differs in the last bit. Targets
  // with bf16 tiles also round queries and weights to bf16.
  const double relative = (stored_as == kv_type::f32 ? 200 * unit(dtype::f32) : 2 * unit(dtype::bf16)) + unit(got.type);
  check_close(got.values(), want, std::vector<double>(want.size(), relative * largest_v), what);
}

dtype out_type(kv_type type) { return type == kv_type::f32 ? dtype::f32 : dtype::bf16; }

constexpr kv_type all_kv_types[] = {kv_type::f32, kv_type::bf16, kv_type::int8, kv_type::fp8};

/// The two types with codes share all but their reading: each has its turn.
kv_type coded(int turn) { return turn % 2 == 0 ? kv_type::int8 : kv_type::fp8; }

std::vector<int> one_by_one(int n) { return std::vector<int>(n, 1); }

std::vector<int> random_chunks(int n, generator& random) {
  std::vector<int> chunks;
  while (n > 0) {
    chunks.push_back(std::min(n, 1 + random.below(40)));
    n -= chunks.back();
  }
  return chunks;
}

const shape shapes[] = {{1, 1, 8},   {2, 2, 14},   {7, 1, 16},  {8, 1, 48},   {4, 2, 64},   {3, 3, 80},
                        {6, 2, 112}, {14, 2, 128}, {2, 1, 250}, {32, 1, 256}, {16, 1, 576}, {3, 1, 640}};

} // namespace

TEST_CASE("attention agrees with the reference for every target, head shape and cache type") {
  for (const isa target : tested_isas())
    for (const auto& s : shapes)
      for (const kv_type type : all_kv_types)
        for (const int window : {0, 37}) {
          const int tokens = s.head_dim > 100 ? 75 : 300;
          const sequence from(s, tokens, 3);
          machine m(target, s, type, tokens);
          const bool norm = s.head_dim == 128;
          const auto out = m.run(from, out_type(type), window, {tokens}, norm);
          check_against_reference(out, from, type, window, norm, name(target, s, type, tokens, window));
        }
}

TEST_CASE("attention gives the same bits at once, in chunks, row by row, with any threads and block table") {
  for (const isa target : tested_isas())
    for (const shape& s : {shape{4, 4, 16}, shape{7, 1, 24}, shape{8, 2, 64}, shape{8, 1, 14}, shape{5, 1, 576}})
      for (const kv_type type : {kv_type::f32, kv_type::bf16, coded(s.heads)})
        for (const int window : {0, 32, 300}) {
          const int tokens = 600;
          const sequence from(s, tokens, 5);
          generator random(7);
          const auto run = [&](int threads, std::vector<int> chunks) {
            machine m(target, s, type, tokens, threads, random.below(1000));
            return m.run(from, out_type(type), window, std::move(chunks));
          };
          const auto at_once = run(1, {tokens});
          const auto what = name(target, s, type, tokens, window);
          CHECK_MESSAGE(run(3, one_by_one(tokens)) == at_once, what, ", row by row");
          CHECK_MESSAGE(run(2, random_chunks(tokens, random)) == at_once, what, ", in chunks");
          CHECK_MESSAGE(run(3, {tokens}) == at_once, what, ", three threads");
        }
}

TEST_CASE("a sequence's bits do not depend on the rest of the batch") {
  for (const isa target : tested_isas())
    for (const kv_type type : all_kv_types) {
      const shape s{6, 2, 32};
      const std::size_t columns = s.columns(), width = s.heads * s.head_dim;
      // Mixed in one batch: decode rows of long and short contexts, prefill chunks.
      struct member {
        int context, rows;
      };
      const member members[] = {{0, 40}, {700, 1}, {5, 1}, {513, 30}, {255, 2}, {0, 1}};
      const int rows = 75, blocks_each = 48;

      std::vector<sequence> sequences;
      for (const auto& m : members)
        sequences.emplace_back(s, m.context + m.rows, unsigned(sequences.size() + 1));

      const auto device = make_backend(target, 3);
      const auto cache = device->make_kv_cache({1, s.kv_heads, s.head_dim, type, blocks_each * std::size(members)});
      std::vector<std::int32_t> tables(blocks_each * std::size(members));
      std::iota(tables.begin(), tables.end(), 0);
      generator random(9);
      std::shuffle(tables.begin(), tables.end(), random.engine);
      const auto prepare = [&](std::span<const sequence_rows> who, std::vector<float>& qkv) {
        device->rope_write_kv({qkv.data(), dtype::f32, qkv.size() / columns, columns, columns}, s.heads, {},
                              sequences[1].rope.data(), *cache, 0, {who, tables});
      };
      const auto attend = [&](std::span<const sequence_rows> who, std::vector<float>& qkv) {
        const std::size_t count = qkv.size() / columns;
        numbers out(dtype::f32, count * width);
        device->attention(out.rows(count), {qkv.data(), dtype::f32, count, columns, columns}, s.heads, 0.2f, 0, *cache,
                          0, {who, tables});
        return out;
      };

      std::vector<sequence_rows> batch;
      std::vector<float> together;
      for (std::size_t i = 0; i < std::size(members); ++i) {
        const auto& m = members[i];
        const int first_block = static_cast<int>(i) * blocks_each;
        if (m.context > 0) {
          const sequence_rows before{0, m.context, 0, first_block};
          std::vector<float> context(sequences[i].qkv.begin(), sequences[i].qkv.begin() + m.context * columns);
          prepare({&before, 1}, context);
        }
        batch.push_back({static_cast<int>(together.size() / columns), m.rows, m.context, first_block});
        together.insert(together.end(), sequences[i].qkv.begin() + m.context * columns, sequences[i].qkv.end());
      }
      REQUIRE(together.size() == rows * columns);
      prepare(batch, together);
      const auto out = attend(batch, together);
      for (const auto& member : batch) {
        auto alone = member;
        alone.first_row = 0;
        const auto begin = together.begin() + member.first_row * columns;
        std::vector<float> qkv(begin, begin + member.rows * columns);
        CHECK_MESSAGE(attend({&alone, 1}, qkv) == out.slice(member.first_row * width, member.rows * width),
                      to_string(target), ", ", member.rows, " rows at ", member.first_position);
      }
    }
}

TEST_CASE("sequences that share blocks get the same bits as alone") {
  // A tree of prompts: context, rows in this step, and the number of tokens shared with sequence 0 or with `parent`.
  struct member {
    int context, rows, parent, common;
  };
  const member members[] = {{900, 1, 0, 0},     {530, 1, 0, 512}, {560, 2, 0, 512}, {1030, 1, 0, 768},
                            {1100, 3, 3, 1024}, {700, 1, 0, 0},   {257, 1, 0, 256}, {100, 1, 0, 96},
                            {512, 9, 0, 512},   {511, 1, 0, 496}, {769, 1, 5, 256}};
  const int blocks_each = 80;
  for (const isa target : tested_isas())
    for (const shape& s : {shape{4, 4, 32}, shape{7, 1, 24}, shape{8, 2, 64}})
      for (const kv_type type : {kv_type::f32, kv_type::bf16, coded(s.heads)})
        for (const int window : {0, 300, 1000}) {
          const std::size_t columns = s.columns(), width = s.heads * s.head_dim;
          const auto caches = blocks_each * std::size(members);
          const auto device = make_backend(target, 1), crowd = make_backend(target, 3);
          const auto cache = device->make_kv_cache({1, s.kv_heads, s.head_dim, type, caches});
          std::vector<std::int32_t> tables(caches);
          std::iota(tables.begin(), tables.end(), 0);
          generator random(21);
          std::shuffle(tables.begin(), tables.end(), random.engine);
          const sequence any(s, 1200, 1); // for its rope table

          std::vector<sequence_rows> batch;
          std::vector<float> together;
          for (std::size_t i = 0; i < std::size(members); ++i) {
            const auto& m = members[i];
            const int first_block = static_cast<int>(i) * blocks_each;
            std::copy_n(tables.begin() + m.parent * blocks_each, m.common / block_tokens, tables.begin() + first_block);
            const int own = m.context - m.common;
            auto rows = random.normal((own + m.rows) * columns);
            const sequence_rows all{0, own + m.rows, m.common, first_block};
            device->rope_write_kv({rows.data(), dtype::f32, std::size_t(all.rows), columns, columns}, s.heads, {},
                                  any.rope.data(), *cache, 0, {{&all, 1}, tables});
            batch.push_back({static_cast<int>(together.size() / columns), m.rows, m.context, first_block});
            together.insert(together.end(), rows.end() - m.rows * columns, rows.end());
          }
          const auto attend = [&](backend& on, std::span<const sequence_rows> who, std::vector<float>& qkv) {
            const std::size_t count = qkv.size() / columns;
            numbers out(dtype::f32, count * width);
            on.attention(out.rows(count), {qkv.data(), dtype::f32, count, columns, columns}, s.heads, 0.2f, window,
                         *cache, 0, {who, tables});
            return out;
          };
          const auto shared = attend(*crowd, batch, together);
          CHECK_MESSAGE(attend(*device, batch, together) == shared, name(target, s, type, 0, window), ", one thread");
          for (const auto& member : batch) {
            auto alone = member;
            alone.first_row = 0;
            const auto begin = together.begin() + member.first_row * columns;
            std::vector<float> qkv(begin, begin + member.rows * columns);
            CHECK_MESSAGE(attend(*device, {&alone, 1}, qkv) ==
                            shared.slice(member.first_row * width, member.rows * width),
                          name(target, s, type, 0, window), ", ", member.rows, " rows at ", member.first_position);
          }
        }
}

TEST_CASE("int8 K and V add no more error than the rounding of their codes") {
  for (const isa target : tested_isas())
    for (const shape& s : {shape{8, 2, 64}, shape{4, 4, 128}}) {
      const int tokens = 600;
      const sequence from(s, tokens, 23);
      machine exact(target, s, kv_type::f32, tokens), coarse(target, s, kv_type::int8, tokens);
      const auto want = exact.run(from, dtype::f32, 0, {tokens}), got = coarse.run(from, dtype::f32, 0, {tokens});
      // A code is off by half a step, 1/127 of its head's largest number; a score by that times sum |q|.
      double largest = 0, longest = 0, error = 0, size = 0;
      for (const float x : from.qkv)
        largest = std::max(largest, std::abs(double(x)) * std::sqrt(2.0)); // rotation combines two elements
      for (std::size_t i = 0; i + s.head_dim <= from.qkv.size(); i += s.head_dim) {
        double sum = 0;
        for (int d = 0; d < s.head_dim; ++d)
          sum += std::abs(from.qkv[i + d]) * std::sqrt(2.0);
        longest = std::max(longest, sum);
      }
      const double step = largest / 254;
      const double score = longest * step / std::sqrt(double(s.head_dim));
      const double bound = step + largest * (std::exp(2 * score) - 1 + 2 * unit(dtype::bf16));
      check_close(got.values(), want.values(), std::vector<double>(want.size(), bound), std::string(to_string(target)));
      for (std::size_t i = 0; i < want.size(); ++i) {
        error += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
      }
      CHECK_MESSAGE(std::sqrt(error / size) < 0.015, to_string(target), ": relative error ", std::sqrt(error / size));
    }
}

TEST_CASE("K and V in fp8 are the codes and scales of E4M3, exactly, small ones too") {
  // One position: attention gives its V. All codes of a head whose largest is 448 times a power of two come back.
  for (const isa target : tested_isas())
    for (const float scale : {1.0f, 0x1p-20f, 0x1p90f}) {
      const shape s{1, 1, 254};
      sequence from(s, 1, 3);
      std::vector<float> want;
      for (int code = 0; code < 256; ++code)
        if (code % 128 != 127) // NaN
          want.push_back(from_e4m3(static_cast<std::uint8_t>(code)) * scale);
      std::copy(want.begin(), want.end(), from.qkv.end() - s.head_dim);
      machine m(target, s, kv_type::fp8, 1);
      auto got = m.run(from, dtype::f32, 0, {1});
      for (int i = 0; i < s.head_dim; ++i)
        CHECK_MESSAGE(got[i] == want[i], to_string(target), ", ", scale, ": ", want[i]);
      // Any other number of the head becomes the nearest code, as to_e4m3 rounds it.
      generator random(31);
      auto others = random.normal(s.head_dim);
      float largest = 0;
      for (auto& x : others)
        largest = std::max(largest, std::abs(x *= scale));
      std::copy(others.begin(), others.end(), from.qkv.end() - s.head_dim);
      got = m.run(from, dtype::f32, 0, {1});
      const float inverse = 448 / largest, unit = largest / 448;
      for (int i = 0; i < s.head_dim; ++i) {
        const auto code = from_e4m3(to_e4m3(others[i] * inverse));
        CHECK_MESSAGE(std::abs(got[i] - double(code) * unit) <= std::abs(double(code)) * unit * 0x1p-7,
                      to_string(target), ", ", scale, ": ", others[i]);
      }
    }
}

TEST_CASE("a cache holds only finite numbers and finite scales") {
  for (const isa target : tested_isas())
    for (const kv_type type : all_kv_types) {
      const shape s{2, 2, 20};
      const int tokens = 40;
      sequence from(s, tokens, 29);
      for (const float bad : {std::nanf(""), INFINITY, -INFINITY, 1e-40f, 0.0f}) {
        // K and V of token 39 are not finite. Earlier rows, computed in the same tile, must not change.
        auto spoilt = from;
        const std::size_t columns = s.columns();
        std::fill(spoilt.qkv.begin() + 39 * columns + s.heads * s.head_dim, spoilt.qkv.begin() + 40 * columns, bad);
        machine m(target, s, type, tokens), other(target, s, type, tokens);
        const std::size_t before = 39 * s.heads * s.head_dim;
        CHECK_MESSAGE(m.run(spoilt, dtype::f32, 0, {tokens}).slice(0, before) ==
                        other.run(from, dtype::f32, 0, {tokens}).slice(0, before),
                      to_string(target), " ", to_string(type), ", ", bad);
      }
    }
}

TEST_CASE("a window that reaches past the context changes nothing, and skipped partitions leave no trace") {
  for (const isa target : tested_isas()) {
    const shape s{4, 2, 16};
    const int tokens = 900;
    const sequence from(s, tokens, 11);
    machine m(target, s, kv_type::f32, tokens);
    CHECK(m.run(from, dtype::f32, 0, {tokens}) == m.run(from, dtype::f32, tokens, {tokens}));
    // With a window of 16, rows from 785 on see only positions from 770, so earlier ones may hold anything.
    const auto windowed = m.run(from, dtype::f32, 16, {tokens});
    auto garbled = from;
    std::fill(garbled.qkv.begin(), garbled.qkv.begin() + 770 * s.columns(), std::nanf(""));
    const auto other = m.run(garbled, dtype::f32, 16, {tokens});
    const std::size_t width = s.heads * s.head_dim, first = 785 * width;
    CHECK(windowed.slice(first, windowed.size() - first) == other.slice(first, other.size() - first));
  }
}

TEST_CASE("attention writes bf16 as the rounded f32 result") {
  for (const isa target : tested_isas()) {
    const shape s{4, 2, 20};
    const sequence from(s, 50, 13);
    machine m(target, s, kv_type::bf16, 50);
    const auto wide = m.run(from, dtype::f32, 0, {50});
    CHECK(m.run(from, dtype::bf16, 0, {50}) == numbers(dtype::bf16, wide.wide));
  }
}

TEST_CASE("copy_blocks copies K and V of all layers, in order") {
  for (const kv_type type : all_kv_types) {
    const shape s{2, 2, 16};
    const int tokens = 40;
    const sequence from(s, tokens, 17);
    machine m(available_isas().back(), s, type, tokens);
    const auto want = m.run(from, dtype::f32, 0, {tokens});
    // The last block moves through another; the table then refers to the new one.
    const auto last = m.table[2], by_way_of = m.table[3], to = m.table[4];
    const block_copy copies[] = {{last, by_way_of}, {by_way_of, to}};
    m.device->copy_blocks(*m.cache, copies);
    m.table[2] = to;
    std::vector<float> row(from.qkv.end() - s.columns(), from.qkv.end());
    const sequence_rows who{0, 1, tokens - 1, 0};
    m.write(row, tokens - 1, 1, {}, from.rope);
    numbers out(dtype::f32, s.heads * s.head_dim);
    const std::size_t columns = s.columns();
    m.device->attention(out.rows(1), {row.data(), dtype::f32, 1, columns, columns}, s.heads, 0.25f, 0, *m.cache, 1,
                        {{&who, 1}, m.table});
    CHECK(out == want.slice(want.size() - out.size(), out.size()));
  }
}

TEST_CASE("blocks travel in their canonical form to a cache of another size, to the same bits") {
  for (const kv_type type : all_kv_types)
    for (const auto& s : {shape{2, 2, 16}, shape{6, 2, 64}, shape{3, 1, 576}, shape{5, 5, 6}}) {
      CAPTURE(to_string(type));
      CAPTURE(s.head_dim);
      const int tokens = 64, blocks = tokens / block_tokens;
      const sequence from(s, tokens, 17);
      machine here(available_isas().back(), s, type, tokens), there(available_isas().back(), s, type, 3 * tokens, 1, 9);
      const auto want = here.run(from, dtype::f32, 0, {tokens});
      const auto bytes = here.cache->shape.block_bytes();
      std::vector<std::byte> images(blocks * bytes);
      std::vector<block_export> out;
      std::vector<block_import> in;
      for (int b = 0; b < blocks; ++b) {
        out.push_back({here.table[b], images.data() + b * bytes});
        in.push_back({images.data() + b * bytes, there.table[b]});
      }
      dynamic_cast<block_transfer&>(*here.device).export_blocks(*here.cache, out);
      dynamic_cast<block_transfer&>(*there.device).import_blocks(*there.cache, in);
      std::vector<std::byte> back(bytes);
      const block_export again[] = {{there.table[1], back.data()}};
      dynamic_cast<block_transfer&>(*there.device).export_blocks(*there.cache, again);
      CHECK(std::equal(back.begin(), back.end(), images.begin() + static_cast<std::ptrdiff_t>(bytes)));

      // The last row, computed where the others' blocks have come to. Its own K and V are there as well.
      std::vector<float> row(from.qkv.end() - s.columns(), from.qkv.end());
      const sequence_rows who{0, 1, tokens - 1, 0};
      there.write(row, tokens - 1, 1, {}, from.rope);
      numbers got(dtype::f32, std::size_t(s.heads) * s.head_dim);
      const std::size_t columns = s.columns();
      there.device->attention(got.rows(1), {row.data(), dtype::f32, 1, columns, columns}, s.heads,
                              1 / std::sqrt(float(s.head_dim)), 0, *there.cache, 1, {{&who, 1}, there.table});
      CHECK(got == want.slice(want.size() - got.size(), got.size()));

      const block_import outside[] = {{images.data(), static_cast<std::int32_t>(there.cache->shape.blocks)}};
      CHECK_THROWS_AS(dynamic_cast<block_transfer&>(*there.device).import_blocks(*there.cache, outside),
                      std::invalid_argument);
    }
}

TEST_CASE("the canonical form is layer by layer, head by head, K then V") {
  const shape s{2, 2, 16};
  machine m(available_isas().back(), s, kv_type::f32, 16);
  std::vector<std::byte> whole(m.cache->shape.block_bytes());
  const auto image = [&] {
    const block_export out[] = {{m.table[0], whole.data()}};
    dynamic_cast<block_transfer&>(*m.device).export_blocks(*m.cache, out);
    return whole;
  };
  const auto before = image();
  // A row of layer 1 changes the second half alone; of its heads, each has K in its first half, V in its second.
  const sequence from(s, 16, 3);
  auto qkv = from.qkv;
  m.write(qkv, 0, 16, {}, from.rope, 1);
  const auto after = image();
  const auto half = static_cast<std::ptrdiff_t>(whole.size() / 2);
  CHECK(std::equal(before.begin(), before.begin() + half, after.begin()));
  const auto values = [&](std::ptrdiff_t part) { // of K or V, as a sorted list: their arrangement is the kernels' own
    std::vector<float> numbers(16 * 16);
    std::memcpy(numbers.data(), after.data() + half + part * half / 4, numbers.size() * sizeof(float));
    std::ranges::sort(numbers);
    return numbers;
  };
  for (int head = 0; head < 2; ++head) {
    std::vector<float> v;
    for (int t = 0; t < 16; ++t)
      for (int d = 0; d < 16; ++d)
        v.push_back(from.qkv[t * s.columns() + (s.heads + s.kv_heads + head) * 16 + d]);
    std::ranges::sort(v);
    CHECK(values(2 * head + 1) == v);
  }
}

TEST_CASE("the rows of a sequence are rotated by its length, also between those of others, and not without angles") {
  const shape s{1, 1, 16};
  const int rows = 6, border = 8;
  const std::size_t columns = s.columns();
  generator random(5);
  const auto shorter = random.normal(rows * s.head_dim), longer = random.normal(rows * s.head_dim),
             values = random.normal(rows * columns);
  for (const isa target : available_isas()) {
    const auto device = make_cpu_backend({2, target});
    const auto rotated = [&](const rope_rows& rope, std::int32_t first_length, std::int32_t last_length) {
      const auto cache = device->make_kv_cache({1, s.kv_heads, s.head_dim, kv_type::f32, 2});
      auto qkv = values;
      const sequence_rows who[] = {{0, 4, 0, 0, first_length}, {4, 2, 1, 1, last_length}};
      const std::int32_t blocks[] = {0, 1};
      device->rope_write_kv({qkv.data(), dtype::f32, rows, columns, columns}, s.heads, {}, rope, *cache, 0,
                            {who, blocks});
      return qkv;
    };
    const auto of_short = rotated(shorter.data(), 0, 0), of_long = rotated(longer.data(), 0, 0);
    const rope_rows both(shorter.data(), longer.data(), border);
    CHECK(of_short != of_long);
    CHECK(rotated(both, 8, 3) == of_short);
    CHECK(rotated(both, 9, 40) == of_long);
    auto mixed = of_short;
    std::copy(of_long.begin() + 4 * std::ptrdiff_t(columns), of_long.end(),
              mixed.begin() + 4 * std::ptrdiff_t(columns));
    CHECK(rotated(both, 8, 9) == mixed);
    CHECK(rotated({}, 8, 9) == values);
  }
}

TEST_CASE("a KV cache rejects shapes that its kernels cannot read") {
  const auto device = make_cpu_backend();
  CHECK_THROWS_AS(device->make_kv_cache({0, 1, 64, kv_type::f32, 1}), std::invalid_argument);
  CHECK_THROWS_AS(device->make_kv_cache({1, 1, 642, kv_type::f32, 1}), std::invalid_argument);
  CHECK_THROWS_AS(device->make_kv_cache({1, 1, 15, kv_type::f32, 1}), std::invalid_argument);
}
