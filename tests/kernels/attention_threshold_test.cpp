// Attention leaves values unread that no query has a weight for: exactly those that add nothing, or, as an
// approximation, those whose weights are below a threshold.
#include "kernels/activation_sparsity.hpp"
#include "kernels/block_transfer.hpp"
#include "tests/kernels/support.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

namespace {

constexpr int th_heads = 4, th_kv_heads = 2, th_dim = 48, th_tokens = 700;
constexpr std::size_t th_columns = (th_heads + 2 * th_kv_heads) * th_dim, th_width = th_heads * th_dim;

/// Scores depend on the token alone: one in `likely` has the score 0, the others are `apart` nats below it, or twice
/// that.
struct steep_text {
  std::vector<float> qkv, rope;
  std::vector<int> level; // [tokens]

  steep_text(float apart, int likely, unsigned seed = 1) : qkv(th_tokens * th_columns), level(th_tokens) {
    generator random(seed);
    const auto values = random.normal(th_tokens * th_kv_heads * th_dim);
    for (std::size_t t = 0; t < th_tokens; ++t) {
      float* row = &qkv[t * th_columns];
      level[t] = random.below(likely) == 0 ? 0 : 1 + random.below(2);
      for (int h = 0; h < th_heads; ++h)
        row[h * th_dim] = apart;
      for (int h = 0; h < th_kv_heads; ++h)
        row[(th_heads + h) * th_dim] = -float(level[t]);
      std::copy_n(&values[t * th_kv_heads * th_dim], th_kv_heads * th_dim, row + (th_heads + th_kv_heads) * th_dim);
      for (int i = 0; i < th_dim; ++i)
        rope.push_back(i < th_dim / 2 ? 1.0f : 0.0f); // turns nothing
    }
  }

  void set_level(int token, int to) {
    level[std::size_t(token)] = to;
    for (int h = 0; h < th_kv_heads; ++h)
      qkv[std::size_t(token) * th_columns + std::size_t((th_heads + h) * th_dim)] = -float(to);
  }
};

struct reader {
  std::unique_ptr<backend> device;
  std::unique_ptr<kv_cache> cache;
  std::vector<std::int32_t> table;

  reader(isa target, kv_type type, int threads = 2)
    : device(make_backend(target, threads)), table((th_tokens + 15) / 16) {
    cache = device->make_kv_cache({1, th_kv_heads, th_dim, type, table.size() + 2});
    std::iota(table.begin(), table.end(), 1);
    std::shuffle(table.begin(), table.end(), generator(5).engine);
  }

  activation_sparsity& sparsity() const { return dynamic_cast<activation_sparsity&>(*device); }

  void write(const steep_text& text) {
    auto rows = text.qkv;
    const sequence_rows all{0, th_tokens, 0, 0};
    device->rope_write_kv({rows.data(), dtype::f32, th_tokens, th_columns, th_columns}, th_heads, {}, text.rope.data(),
                          *cache, 0, {{&all, 1}, table});
  }

  numbers read(const steep_text& text, int first, int rows, float threshold, int window = 0) {
    const sequence_rows some{0, rows, first, 0};
    return read(text, first, rows, {&some, 1}, threshold, window);
  }

  /// Rows from `first` on, which belong to these sequences; all of them have the same blocks.
  numbers read(const steep_text& text, int first, int rows, std::span<const sequence_rows> sequences, float threshold,
               int window = 0) {
    auto q = text.qkv;
    numbers out(dtype::f32, std::size_t(rows) * th_width);
    attention_scores scores;
    scores.threshold = threshold;
    scores.window = window;
    device->shaped_attention(
      out.rows(std::size_t(rows)),
      {&q[std::size_t(first) * th_columns], dtype::f32, std::size_t(rows), th_columns, th_columns}, th_heads, scores,
      *cache, 0, {sequences, table});
    return out;
  }

  /// Makes NaN of the values of tokens that `unread` says.
  template <class Unread>
  void spoil(const Unread& unread) {
    auto& transfer = dynamic_cast<block_transfer&>(*device);
    const auto bytes = cache->shape.block_bytes();
    std::vector<char> form(bytes);
    for (std::size_t b = 0; b < table.size(); ++b) {
      const block_export from{table[b], form.data()};
      transfer.export_blocks(*cache, {&from, 1});
      for (int h = 0; h < th_kv_heads; ++h) {
        auto* values = form.data() + bytes / th_kv_heads * std::size_t(h) + bytes / th_kv_heads / 2;
        for (int t = 0; t < block_tokens; ++t)
          for (int d = 0; d < th_dim && unread(int(b) * block_tokens + t); ++d)
            if (cache->shape.type == kv_type::f32)
              std::memset(values + (t * th_dim + d) * 4, 0xff, 4);
            else if (unread(int(b) * block_tokens + (t ^ 1))) // pairs of tokens
              std::memset(values + ((t / 2 * th_dim + d) * 2 + t % 2) * 2, 0xff, 2);
      }
      const block_import to{form.data(), table[b]};
      transfer.import_blocks(*cache, {&to, 1});
    }
  }
};

/// What the last token reads of a KV head, by definition.
std::vector<double> mean_of_values(const steep_text& text, int kv_head, double apart, double threshold) {
  std::vector<double> sum(th_dim);
  double all = 0;
  for (int partition = 0; partition * partition_tokens < th_tokens; ++partition) {
    const int first = partition * partition_tokens, end = std::min(th_tokens, first + partition_tokens);
    const auto least_of = [&](int from, int to) {
      return *std::min_element(&text.level[std::size_t(from)], &text.level[std::size_t(to - 1)] + 1);
    };
    const int best = std::min(least_of(0, partition_tokens), least_of(first, end));
    for (int t = first; t < end; ++t) {
      if (std::exp(-apart * (text.level[std::size_t(t)] - best)) < threshold)
        continue;
      const double weight = std::exp(-apart * text.level[std::size_t(t)]);
      all += weight;
      for (int d = 0; d < th_dim; ++d)
        sum[std::size_t(d)] += weight *
          text.qkv[std::size_t(t) * th_columns + std::size_t((th_heads + th_kv_heads + kv_head) * th_dim + d)];
    }
  }
  for (double& x : sum)
    x /= all;
  return sum;
}

} // namespace

TEST_CASE("Weights below the threshold count as zero, as attention over the other tokens has it") {
  const steep_text text(4, 8);
  for (const isa target : tested_isas())
    for (const kv_type type : {kv_type::f32, kv_type::bf16, kv_type::int8, kv_type::fp8}) {
      reader machine(target, type);
      machine.write(text);
      for (const float threshold : {0.0f, 1e-3f, 0.1f}) { // e^-4 is 0.018, e^-8 0.0003
        CAPTURE(std::string(to_string(target)));
        CAPTURE(std::string(to_string(type)));
        CAPTURE(threshold);
        const auto before = machine.sparsity().unread_values();
        const auto got = machine.read(text, th_tokens - 1, 1, threshold);
        const auto unread = machine.sparsity().unread_values() - before;
        for (int h = 0; h < th_heads; ++h)
          check_close(got.slice(std::size_t(h) * th_dim, th_dim).values(),
                      mean_of_values(text, h / (th_heads / th_kv_heads), 4, threshold),
                      std::vector<double>(th_dim,
                                          type == kv_type::f32     ? 1e-5
                                            : type == kv_type::fp8 ? 0.1
                                                                   : 0.03),
                      "head");
        if (target == isa::avx512_amx && type != kv_type::f32)
          CHECK(unread == 0);
        else
          CHECK((unread > 0) == (threshold > 0));
      }
    }
}

TEST_CASE("With a threshold rows have the same bits alone, in chunks, and on any number of threads") {
  steep_text text(1.5f, 20);
  text.set_level(7, -1); // beside which others' first levels do not count
  for (const isa target : tested_isas())
    for (const kv_type type : {kv_type::f32, kv_type::bf16, kv_type::int8}) {
      CAPTURE(std::string(to_string(target)));
      CAPTURE(std::string(to_string(type)));
      reader machine(target, type), single(target, type, 1);
      machine.write(text);
      single.write(text);
      for (const int window : {0, 300}) {
        const auto all = machine.read(text, 0, th_tokens, 0.1f, window);
        CHECK(single.read(text, 0, th_tokens, 0.1f, window) == all);
        for (const auto& [first, rows] : {std::pair{0, 1}, {255, 3}, {300, 45}, {540, 30}, {699, 1}, {680, 7}})
          CHECK(machine.read(text, first, rows, 0.1f, window) ==
                all.slice(std::size_t(first) * th_width, std::size_t(rows) * th_width));
        const sequence_rows sharing[] = {{0, 1, 690, 0}, {1, 1, 691, 0}, {2, 8, 692, 0}}; // two partitions, read once
        CHECK(machine.read(text, 690, 10, sharing, 0.1f, window) == all.slice(690 * th_width, 10 * th_width));
      }
    }
}

TEST_CASE("Partitions whose weights are all below the threshold beside the first one's are not read") {
  steep_text text(4, 8);
  text.set_level(3, -2); // e^-8 is 0.0003
  const int end = 2 * partition_tokens;
  for (const isa target : tested_isas())
    for (const kv_type type : {kv_type::f32, kv_type::bf16}) {
      CAPTURE(std::string(to_string(target)));
      CAPTURE(std::string(to_string(type)));
      reader machine(target, type);
      machine.write(text);
      const auto before = machine.sparsity().unread_values();
      const auto whole = machine.read(text, end - 1, 1, 0.1f);
      CHECK(machine.sparsity().unread_values() > before);
      for (int h = 0; h < th_heads; ++h) // one token has all the weight
        check_close(whole.slice(std::size_t(h) * th_dim, th_dim).values(),
                    mean_of_values(text, h / (th_heads / th_kv_heads), 4, 0.1),
                    std::vector<double>(th_dim, type == kv_type::f32 ? 1e-5 : 0.03), "head");
      machine.spoil([&](int t) { return t >= partition_tokens; });
      CHECK(machine.read(text, end - 1, 1, 0.1f) == whole);
      CHECK(machine.read(text, end - 40, 40, 0.1f).slice(39 * th_width, th_width) == whole);
    }
}

TEST_CASE("Values of weights that are exactly zero are not read, and the rest has the same bits") {
  const steep_text text(300, 8);
  for (const isa target : tested_isas())
    for (const kv_type type : {kv_type::f32, kv_type::bf16}) {
      if (target < isa::avx512 || (target == isa::avx512_amx && type == kv_type::bf16))
        continue; // exponentials do not reach 0 there, or tiles are read whole
      CAPTURE(std::string(to_string(target)));
      CAPTURE(std::string(to_string(type)));
      reader machine(target, type);
      machine.write(text);
      const auto whole = machine.read(text, 0, th_tokens, 0); // rows whose neighbours need other values
      const auto before = machine.sparsity().unread_values();
      const auto last = machine.read(text, th_tokens - 1, 1, 0);
      CHECK(last == whole.slice((th_tokens - 1) * th_width, th_width));
      CHECK(machine.sparsity().unread_values() > before);
      machine.spoil([&](int t) { return t >= th_tokens || text.level[std::size_t(t)] > 0; });
      CHECK(machine.read(text, th_tokens - 1, 1, 0) == last);
    }
}
