// Measures attention: decode against reading K and V once, prefill against the FMA peak, and the gain of sequences that
// share their prompt's blocks.
#include "kernels/activation_sparsity.hpp"
#include "kernels/cpu/dispatch.hpp"
#include "tests/bench/measure.hpp"
#include "tests/kernels/cpu/prompt_pieces.hpp"
#include "tests/kernels/cuda/prompt_tiles.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <numeric>
#include <random>

namespace troupe::bench {

using namespace kernels;

namespace {

struct shape {
  int heads, kv_heads, dim;
};

/// Caches of several layers, so that steps read from memory, and a scattered block table.
class attention_bench {
public:
  attention_bench(backend& device, const shape& s, kv_type type, int tokens)
    : device_(device),
      s_(s),
      columns_((s.heads + 2 * s.kv_heads) * s.dim),
      table_(tokens / block_tokens),
      cache_(device.make_kv_cache({layers, s.kv_heads, s.dim, type, table_.size()})),
      rope_(std::size_t(tokens) * s.dim, 0.7f),
      qkv_(random_floats(most_rows * columns_)),
      out_(device, type == kv_type::f32 ? dtype::f32 : dtype::bf16, most_rows, s.heads * s.dim) {
    std::iota(table_.begin(), table_.end(), 0);
    std::shuffle(table_.begin(), table_.end(), std::minstd_rand(3));
    for (int layer = 0; layer < layers; ++layer)
      for (int position = 0; position < tokens; position += most_rows)
        write({0, std::min(most_rows, tokens - position), position, 0}, layer);
  }

  void write(const sequence_rows& who, int layer) {
    device_.rope_write_kv(q(who.rows), s_.heads, {}, rope_.data(), *cache_, layer, {{&who, 1}, table_});
  }

  timing attend(std::span<const sequence_rows> who, std::span<const std::int32_t> tables) {
    const auto& last = who.back();
    int layer = 0;
    return measure([&] {
      device_.attention(out_.view, q(last.first_row + last.rows), s_.heads, 0.125f, 0, *cache_, layer++ % layers,
                        {who, tables});
    });
  }
  timing attend(std::span<const sequence_rows> who, std::span<const std::int32_t> tables,
                const attention_scores& scores, std::size_t* calls = nullptr) {
    const auto& last = who.back();
    int layer = 0;
    return measure([&] {
      device_.shaped_attention(out_.view, q(last.first_row + last.rows), s_.heads, scores, *cache_, layer++ % layers,
                               {who, tables});
      if (calls != nullptr)
        ++*calls;
    });
  }
  timing attend(const sequence_rows& who) { return attend({&who, 1}, table_); }
  /// Of one layer, which stays in caches.
  timing attend_cached(const sequence_rows& who) {
    return measure([&] {
      device_.attention(out_.view, q(who.rows), s_.heads, 0.125f, 0, *cache_, 0, {{&who, 1}, table_});
    });
  }

  /// Seconds that each of `layers` takes.
  double attend_layers(std::span<const sequence_rows> who, std::span<const std::int32_t> tables) {
    const double start = now();
    for (int layer = 0; layer < layers; ++layer)
      device_.attention(out_.view, q(who.back().first_row + who.back().rows), s_.heads, 0.125f, 0, *cache_, layer,
                        {who, tables});
    return (now() - start) / layers;
  }

  const std::vector<std::int32_t>& table() const { return table_; }
  double token_bytes() const { return double(cache_->shape.block_bytes()) / layers / block_tokens; }

  static constexpr int layers = 8, most_rows = 2048;

private:
  tensor q(int rows) { return {qkv_.data(), dtype::f32, std::size_t(rows), columns_, columns_}; }

  backend& device_;
  shape s_;
  std::size_t columns_;
  std::vector<std::int32_t> table_;
  std::unique_ptr<kv_cache> cache_;
  std::vector<float> rope_, qkv_;
  device_tensor out_;
};

void long_contexts(backend& device, const machine_peaks& peak, const shape& s, kv_type type) {
  const int context = 8192;
  attention_bench bench(device, s, type, context);
  std::printf("attention %d:%d x %d %s:", s.heads, s.kv_heads, s.dim, to_string(type));
  std::vector<std::int32_t> consecutive(bench.table().size());
  std::iota(consecutive.begin(), consecutive.end(), 0);
  const sequence_rows last{0, 1, context - 1, 0};
  const auto decode = [&](const char* how, const std::vector<std::int32_t>& table) {
    const auto t = bench.attend({&last, 1}, table);
    const double bytes = context * bench.token_bytes();
    std::printf(" decode at 8k, blocks %s %.0f us = %.1f GB/s (%.0f%%, median %.0f%% of read),", how, t.best * 1e6,
                bytes / t.best / 1e9, 100 * bytes / t.best / peak.read, 100 * bytes / t.median / peak.read);
  };
  decode("consecutive", consecutive);
  decode("scattered", bench.table());
  const auto prefill = bench.attend({0, bench.most_rows, 0, 0});
  const double operations = 4.0 * s.heads * s.dim * bench.most_rows * (bench.most_rows + 1.0) / 2;
  std::printf(" prefill 2k %.1f ms = %.0f GF (%.0f%%, median %.0f%% of FMA)", prefill.best * 1e3,
              operations / prefill.best / 1e9, 100 * operations / prefill.best / peak.f32_fma,
              100 * operations / prefill.median / peak.f32_fma);
  const auto write = measure([&] { bench.write({0, bench.most_rows, 0, 0}, 0); });
  std::printf(", rope_write_kv 2k rows %.2f ms\n", write.best * 1e3);
}

struct with_and_without {
  timing without, with;
};

/// A row each of some sequences, whose first tokens are common: with separate copies of their blocks, and sharing them.
struct prefix_bench {
  attention_bench bench;
  std::vector<sequence_rows> who;
  std::vector<std::int32_t> shared;

  prefix_bench(backend& device, const shape& s, kv_type type, int sequences, int common, int own)
    : bench(device, s, type, sequences * blocks(common + own) * block_tokens), shared(bench.table()) {
    for (int i = 0; i < sequences; ++i) {
      who.push_back({i, 1, common + own - 1, i * blocks(common + own)});
      std::copy_n(shared.begin(), common / block_tokens, shared.begin() + who.back().first_block);
    }
  }
  static int blocks(int tokens) { return (tokens + block_tokens - 1) / block_tokens; }
};

/// 32 sequences with 2k common tokens and 64 of their own.
with_and_without shared_prefix(backend& device, const shape& s, kv_type type) {
  prefix_bench prefix(device, s, type, 32, 2048, 64);
  return {prefix.bench.attend(prefix.who, prefix.bench.table()), prefix.bench.attend(prefix.who, prefix.shared)};
}

void print_shared_prefix(backend& device, const shape& s, kv_type type) {
  const auto [apart, together] = shared_prefix(device, s, type);
  std::printf("attention %d:%d x %d %s: 32 sequences, 2k common + 64 tokens: %.0f us apart, %.0f us shared: %.1fx "
              "(median %.1fx)\n",
              s.heads, s.kv_heads, s.dim, to_string(type), apart.best * 1e6, together.best * 1e6,
              apart.best / together.best, apart.median / together.median);
}

/// One sequence with one KV head at 32k tokens. Without partitions it would be work for one thread.
with_and_without partitioned_decode(const cpu_options& options) {
  const int context = 32768;
  const sequence_rows last{0, 1, context - 1, 0};
  auto alone = options;
  alone.threads = 1;
  with_and_without result = {};
  for (auto* to : {&result.without, &result.with}) {
    const auto device = make_cpu_backend(to == &result.with ? options : alone);
    attention_bench bench(*device, {8, 1, 128}, kv_type::bf16, context);
    *to = bench.attend(last);
  }
  return result;
}

/// e^x for x <= 0, to about 1e-6: in a form that compilers vectorise.
inline float exponential(float x) {
  const float scaled = std::max(x, -87.0f) * 1.44269504f;
  const float whole = static_cast<float>(static_cast<int>(scaled - 0.5f));
  const float rest = (scaled - whole) * 0.69314718f;
  const float power = 1 + rest * (1 + rest * (0.5f + rest * (0.16666667f + rest * (0.041666667f + rest * 0.0083333f))));
  return power * std::bit_cast<float>((static_cast<int>(whole) + 127) << 23);
}

/// Of `visible` scores; the others become zero.
[[gnu::target_clones("avx512f", "avx2", "default")]] void softmax_pass(float* scores, std::size_t visible,
                                                                       std::size_t all) {
  float largest = scores[0];
  for (std::size_t i = 0; i < visible; ++i)
    largest = std::max(largest, scores[i]);
  float sums[16] = {};
  std::size_t i = 0;
  for (; i + 16 <= visible; i += 16)
    for (std::size_t k = 0; k < 16; ++k)
      sums[k] += scores[i + k] = exponential((scores[i + k] - largest) * 0.125f);
  for (; i < visible; ++i)
    sums[0] += scores[i] = exponential((scores[i] - largest) * 0.125f);
  const float scale = 1 / std::accumulate(std::begin(sums), std::end(sums), 0.0f);
  for (i = 0; i < visible; ++i)
    scores[i] *= scale;
  std::fill(scores + visible, scores + all, 0.0f);
}

/// The last `rows` of a prompt, in f32 on one thread: scores of all pairs written, normalised and multiplied with V, each in
/// a pass of its own with this backend's products; and in one pass over tiles.
with_and_without tiled_prefill(cpu_options options, std::size_t context, std::size_t rows, int heads) {
  constexpr std::size_t dim = 64;
  options.threads = 1;
  const auto device = make_cpu_backend(options);
  attention_bench bench(*device, {heads, heads, dim}, kv_type::f32, int(context));
  with_and_without result = {};
  result.with = bench.attend({0, int(rows), int(context - rows), 0});
  const auto numbers = random_floats(context * dim);
  const stored_matrix k{numbers.data(), weight_format::f32, context, dim};
  const stored_matrix v{numbers.data(), weight_format::f32, dim, context}; // transposed
  const auto keys = device->pack({&k, 1}, dtype::f32), values = device->pack({&v, 1}, dtype::f32);
  device_tensor q(*device, dtype::f32, rows, dim), scores(*device, dtype::f32, rows, context),
    out(*device, dtype::f32, rows, dim);
  std::copy_n(numbers.begin(), rows * dim, static_cast<float*>(q.view.data));
  result.without = measure([&] {
    for (int head = 0; head < heads; ++head) {
      device->linear(scores.view, q.view, *keys);
      for (std::size_t row = 0; row < rows; ++row)
        softmax_pass(static_cast<float*>(scores.view.data) + row * context, context - rows + row + 1, context);
      device->linear(out.view, scores.view, *values);
    }
  });
  return result;
}

/// One sequence's decode at 32k with a threshold against none, in turn, for scores that are spread more or less.
void thresholds(backend& device, const shape& s, kv_type type) {
  const int context = 32768;
  attention_bench bench(device, s, type, context);
  auto& sparsity = dynamic_cast<activation_sparsity&>(device);
  const sequence_rows last{0, 1, context - 1, 0};
  std::printf("attention %d:%d x %d %s, decode at 32k with --attention-threshold:\n", s.heads, s.kv_heads, s.dim,
              to_string(type));
  for (const float deviation : {1.0f, 3.0f, 6.0f, 12.0f})
    for (const float threshold : {0x1p-24f, 0x1p-16f, 0x1p-8f}) {
      attention_scores none;
      none.scale = deviation * 3 / std::sqrt(float(s.dim)); // products of numbers in [-1, 1]
      auto some = none;
      some.threshold = threshold;
      std::vector<double> ratios;
      std::size_t unread = 0, calls = 0;
      for (int round = 0; round < 5; ++round) {
        const auto a = bench.attend({&last, 1}, bench.table(), none);
        const auto before = sparsity.unread_values();
        const auto b = bench.attend({&last, 1}, bench.table(), some, &calls);
        unread += sparsity.unread_values() - before;
        ratios.push_back(a.median / b.median);
      }
      std::ranges::sort(ratios);
      std::printf("  scores of deviation %.0f, below 2^%.0f: %.0f %% of V unread, %.2f x (%.2f to %.2f)\n",
                  double(deviation), std::log2(double(threshold)),
                  100 * double(unread) / double(calls) / (context * bench.token_bytes() / 2), ratios[2], ratios.front(),
                  ratios.back());
      std::fflush(stdout);
    }
}

void print_technique(const char* name, const with_and_without& measured) {
  std::printf("{\"technique\": \"%s\", \"without_us\": %.1f, \"with_us\": %.1f}\n", name, measured.without.median * 1e6,
              measured.with.median * 1e6);
  std::fflush(stdout);
}

} // namespace

void attention(backend& device, const machine_peaks& peak) {
  for (const shape& s : {shape{32, 8, 64}, shape{32, 8, 128}, shape{16, 16, 64}, shape{16, 16, 128}})
    for (const kv_type type : {kv_type::f32, kv_type::bf16, kv_type::int8})
      long_contexts(device, peak, s, type);
  for (const kv_type type : {kv_type::f32, kv_type::bf16, kv_type::int8})
    print_shared_prefix(device, {32, 8, 64}, type);
}

/// Decoding from caches by the type of K and V, in turn: what arithmetic limits.
void attention_codes(backend& device) {
  const int context = 8192;
  for (const int queries : {1, 4, 8, 12}) {
    const shape s{8 * queries, 8, 64};
    std::printf("decode of 8,192 cached positions, 8 KV heads of 64, %2d queries each:", queries);
    constexpr kv_type types[] = {kv_type::bf16, kv_type::int8, kv_type::fp8};
    std::vector<double> times[std::size(types)];
    std::vector<std::unique_ptr<attention_bench>> benches;
    for (const auto type : types)
      benches.push_back(std::make_unique<attention_bench>(device, s, type, context));
    const sequence_rows last{0, 1, context - 1, 0};
    for (int round = 0; round < 5; ++round)
      for (std::size_t i = 0; i < std::size(types); ++i)
        times[i].push_back(benches[i]->attend_cached(last).median);
    for (std::size_t i = 0; i < std::size(types); ++i) {
      std::ranges::sort(times[i]);
      std::printf(" %s %.0f us (%.2f of bf16)", to_string(types[i]), times[i][2] * 1e6, times[i][2] / times[0][2]);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

/// Prefixes of any length: the time of a layer, and against copies of the common blocks, in turn.
void attention_prefixes(backend& device) {
  constexpr int own = 40, rounds = 7;
  for (const shape& s : {shape{32, 8, 64}, shape{16, 16, 64}})
    for (const kv_type type : {kv_type::f32, kv_type::bf16, kv_type::int8})
      for (const int sequences : {8, 64}) {
        std::printf("attention %d:%d x %d %s, %d sequences with %d tokens of their own:", s.heads, s.kv_heads, s.dim,
                    to_string(type), sequences, own);
        for (const int common : {100, 200, 300, 1000}) {
          prefix_bench prefix(device, s, type, sequences, common, own);
          std::vector<double> ratios, times;
          for (int round = 0; round < rounds; ++round) {
            const double apart = prefix.bench.attend_layers(prefix.who, prefix.bench.table());
            times.push_back(prefix.bench.attend_layers(prefix.who, prefix.shared));
            ratios.push_back(apart / times.back());
          }
          std::ranges::sort(ratios);
          std::ranges::sort(times);
          std::printf(" %d common %.0f us, %.2f times as fast as apart (%.2f to %.2f);", common,
                      times[rounds / 2] * 1e6, ratios[rounds / 2], ratios[1], ratios[rounds - 2]);
        }
        std::printf("\n");
        std::fflush(stdout);
      }
}

void attention_thresholds(backend& device) {
  for (const shape& s : {shape{32, 8, 64}, shape{32, 32, 64}, shape{32, 8, 128}})
    thresholds(device, s, kv_type::bf16);
}

/// The table of FlashAttention (Dao et al. 2022, figure 2; an A100) beside this. Theirs is forward and backward, ours forward.
void attention_bytes(const cpu_options& options) {
  const testing::prompt_shape published, one{1024, 64, 16};
  struct row {
    const char* what;
    testing::attention_traffic passes, tiled;
  };
  const auto gpu = testing::on_gpu(published);
  const int queries = int(find_target(options.target).wide_queries);
  const auto cpu = testing::on_cpu(published, queries, 1);
  const row rows[] = {{"a GPU, bf16, by the plan that the emulation's counts equal",
                       testing::three_passes(published, 2), testing::by_tiles(published, 2, gpu.kv, gpu.scores, 32)},
                      {"a CPU, f32, by the plan: memory, where a head's K and V (512 kB) stay in a cache",
                       testing::three_passes(published, 4),
                       testing::by_tiles(published, 4, published.tokens, cpu.scores, partition_tokens)},
                      {"a CPU, f32, by the plan: that cache", testing::three_passes(published, 4),
                       testing::by_tiles(published, 4, cpu.kv, cpu.scores, partition_tokens)}};
  std::printf(
    "attention of 1,024 tokens, 16 heads of 64, 64 sequences\n\n| | GFLOP: three passes | tiled | ratio | GB: "
    "three passes | tiled | ratio |\n|---|---|---|---|---|---|---|\n| published, forward and backward, no mask "
    "| 66.6 | 75.2 | 1.13 | 40.3 | 4.4 | 9.2 |\n");
  for (const auto& r : rows)
    std::printf("| %s, forward, causal | %.1f | %.1f | %.2f | %.1f | %.2f | %.1f |\n", r.what,
                r.passes.operations / 1e9, r.tiled.operations / 1e9, r.tiled.operations / r.passes.operations,
                r.passes.bytes / 1e9, r.tiled.bytes / 1e9, r.passes.bytes / r.tiled.bytes);
  std::fflush(stdout);
  std::vector<double> ratios;
  with_and_without best{{1, 1}, {1, 1}};
  for (int round = 0; round < 5; ++round) {
    const auto t = tiled_prefill(options, std::size_t(one.tokens), std::size_t(one.tokens), int(one.heads));
    best.without.median = std::min(best.without.median, t.without.median);
    best.with.median = std::min(best.with.median, t.with.median);
    ratios.push_back(t.without.median / t.with.median);
  }
  std::ranges::sort(ratios);
  std::printf(
    "\ntime, published: 41.7 and 7.3 ms, 5.7 times as fast; one thread here, one sequence, forward, f32: %.1f and "
    "%.1f ms, %.1f times (%.1f to %.1f)\n",
    best.without.median * 1e3, best.with.median * 1e3, ratios[2], ratios.front(), ratios.back());
}

void attention_techniques(const cpu_options& options) {
  print_technique("hydragen", shared_prefix(*make_cpu_backend(options), {32, 8, 64}, kv_type::bf16));
  print_technique("partitioned decode", partitioned_decode(options));
  print_technique("tiled attention", tiled_prefill(options, 8192, 512, 8));
}

} // namespace troupe::bench
