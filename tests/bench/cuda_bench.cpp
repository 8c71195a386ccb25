// Measures the CUDA kernels against the peaks of the same GPU in the same run: copy bandwidth and the library's bf16
// rate. Prints a line per measurement, then the table of targets. Times are medians of graph replays.
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/device/attention/attention.hpp"
#include "kernels/cuda/device/linear/fp8.hpp"
#include "kernels/cuda/device/linear/linear.hpp"
#include "kernels/cuda/device/sampling.hpp"
#include "kernels/cuda/gemm_library.hpp"
#include "kernels/cuda/machine.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>

using namespace troupe::kernels;
using namespace troupe::kernels::cuda;

namespace {

constexpr int heads = 32, kv_heads = 8, head_dim = 128; // of the llama-8b shape
constexpr std::size_t columns = (heads + 2 * kv_heads) * head_dim;
constexpr std::size_t resident = std::size_t(1) << 29; // bytes of weights used in turn: far more than the L2

struct target {
  std::string what;
  double value;
  double limit; // the least, for times the most
  bool time;
};
std::vector<target> targets;

void report(const std::string& what, double value, double limit, bool time = false) {
  targets.push_back({what, value, limit, time});
}

std::mt19937& engine() {
  static std::mt19937 instance(1);
  return instance;
}

/// Random memory: a megabyte from the host, repeated.
template <class Sample>
buffer random_memory(const stream& on, std::size_t bytes, const Sample& sample) {
  std::vector<std::uint16_t> piece(std::size_t(1) << 19);
  for (auto& x : piece)
    x = sample();
  auto memory = allocate(bytes);
  for (std::size_t at = 0; at < bytes; at += piece.size() * 2)
    copy_to_device(on, static_cast<char*>(memory.get()) + at, piece.data(), std::min(bytes - at, piece.size() * 2));
  on.synchronise();
  return memory;
}

std::uint16_t random_bf16() { // normal
  static std::normal_distribution<float> normal;
  const float x = normal(engine());
  std::uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return static_cast<std::uint16_t>(bits >> 16);
}
std::uint16_t random_code() { return static_cast<std::uint16_t>(engine()()); }
std::uint16_t random_scale() { return static_cast<std::uint16_t>(0x2000 + engine()() % 0x400); } // f16, about 2^-7

buffer random_floats(const stream& on, std::size_t count) {
  std::vector<float> x(std::min<std::size_t>(count, 1 << 20));
  std::normal_distribution<float> normal(0, 2);
  for (auto& v : x)
    v = normal(engine());
  auto memory = allocate(count * 4);
  for (std::size_t at = 0; at < count; at += x.size())
    copy_to_device(on, static_cast<float*>(memory.get()) + at, x.data(), std::min(count - at, x.size()) * 4);
  on.synchronise();
  return memory;
}

weight_part random_part(const stream& on, weight_kind kind, std::size_t outputs, std::size_t inputs) {
  weight_part part;
  part.kind = kind;
  part.outputs = outputs;
  part.inputs = part.stride = inputs;
  part.tiles = outputs / tile_outputs;
  if (is_grouped(kind)) {
    part.codes = random_memory(on, part.tiles * part.chunks() * chunk_code_bytes(kind), random_code);
    part.scales = random_memory(on, part.tiles * part.chunks() * chunk_scale_bytes(kind), random_scale);
  } else if (kind == weight_kind::fp8) {
    part.stride = part.chunks() * chunk_inputs;
    part.codes = random_memory(on, outputs * part.stride, random_code);
    part.scales = random_floats(on, outputs);
  } else {
    part.codes = random_memory(on, outputs * inputs * 2, random_bf16);
  }
  return part;
}

std::size_t bytes_of(const weight_part& part) {
  const std::size_t chunks = part.tiles * part.chunks();
  if (part.kind == weight_kind::fp8)
    return part.outputs * (part.stride + sizeof(float));
  return is_grouped(part.kind) ? chunks * (chunk_code_bytes(part.kind) + chunk_scale_bytes(part.kind))
                               : part.outputs * part.stride * 2;
}

const char* name(weight_kind kind) { return layout_of(kind).name; }

/// All products of a layer of the llama-8b shape with a few rows, for every kind of weights: weight bytes per second as
/// a share of copy bandwidth.
void few_rows(stream& on, double bandwidth) {
  struct shape {
    std::size_t outputs, inputs;
  };
  const shape shapes[] = {{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}};
  const auto in = random_memory(on, 16 * 14336 * 2, random_bf16);
  const auto out = allocate(16 * 28672 * 4);
  for (const auto kind : {weight_kind::bf16, weight_kind::fp8, weight_kind::q8, weight_kind::q4_min, weight_kind::q4,
                          weight_kind::q4_k, weight_kind::q5, weight_kind::q5_k, weight_kind::q6_k}) {
    double time[5] = {}, worst = 1e9;
    std::size_t bytes = 0;
    constexpr std::size_t rows[] = {1, 2, 4, 8, 16};
    for (const auto& s : shapes) {
      std::vector<weight_part> copies;
      for (std::size_t held = 0; held < resident || copies.size() < 2; held += bytes_of(copies.back()))
        copies.push_back(random_part(on, kind, s.outputs, s.inputs));
      bytes += bytes_of(copies[0]);
      std::printf("linear %s %zu x %zu:", name(kind), s.outputs, s.inputs);
      for (int i = 0; i < 5; ++i) {
        const double t = seconds_per_call(on, static_cast<int>(copies.size()), [&](int call) {
          const auto& part = copies[static_cast<std::size_t>(call)];
          auto p = params_of(part);
          p.out = out.get();
          p.out_stride = s.outputs;
          p.in = in.get();
          p.in_stride = s.inputs;
          p.rows = rows[i];
          linear_flat(on, part, p);
        });
        time[i] += t;
        std::printf("  %zu rows %.1f us %.0f %%", rows[i], t * 1e6, 100 * double(bytes_of(copies[0])) / t / bandwidth);
      }
      std::printf("\n");
    }
    std::printf("linear %s, a layer:", name(kind));
    for (int i = 0; i < 5; ++i) {
      const double share = 100 * double(bytes) / time[i] / bandwidth;
      worst = std::min(worst, share);
      std::printf("  %zu rows %.0f %%", rows[i], share);
    }
    std::printf("\n");
    const std::map<weight_kind, double> wanted{
      {weight_kind::bf16, 88}, {weight_kind::q8, 85}, {weight_kind::q4_min, 80}};
    if (const auto least = wanted.find(kind); least != wanted.end())
      report(std::string("linear, 1-16 rows, ") + name(kind) + ", % of copy bandwidth, worst", worst, least->second);
  }
}

/// Own kernel against the library for one product. The library needs groups expanded; for fp8 weights activations are
/// quantised, too. Shows the alternatives of the chooser, and the cost of deterministic mode, which always uses the own
/// kernel.
void many_rows(stream& on, gemm_library& library) {
  const std::size_t outputs = 14336, inputs = 4096, most = 2048;
  const auto in = random_memory(on, most * inputs * 2, random_bf16);
  const auto out = allocate(most * outputs * 4), expanded = allocate(outputs * inputs * 2);
  const auto codes = allocate(most * inputs), scales = allocate(most * 4);
  for (const auto kind : {weight_kind::bf16, weight_kind::fp8, weight_kind::q8, weight_kind::q4_k}) {
    const auto part = random_part(on, kind, outputs, inputs);
    for (const std::size_t rows : {16, 32, 64, 128, 256, 512, 2048}) {
      auto p = params_of(part);
      p.out = out.get();
      p.out_stride = outputs;
      p.in = in.get();
      p.in_stride = inputs;
      p.rows = rows;
      const double flat = seconds_per_call(on, 2, [&](int) { linear_flat(on, part, p); });
      bool there = true;
      const double other = seconds_per_call(on, 2, [&](int) {
        product q;
        q.out = static_cast<float*>(out.get());
        q.out_stride = q.outputs = outputs;
        q.in = in.get();
        q.in_stride = q.weight_stride = q.inputs = inputs;
        q.weights = part.codes.get();
        q.rows = rows;
        if (is_grouped(kind)) {
          dequantise_part(on, part, static_cast<std::uint16_t*>(expanded.get()), inputs);
          q.weights = expanded.get();
        } else if (kind == weight_kind::fp8) {
          q.fp8 = true;
          q.in = codes.get();
          q.row_scales = static_cast<const float*>(scales.get());
          q.output_scales = static_cast<const float*>(part.scales.get());
          quantise_rows(on,
                        {static_cast<std::uint8_t*>(codes.get()), static_cast<float*>(scales.get()),
                         static_cast<const std::uint16_t*>(in.get()), inputs, inputs, inputs, rows});
        }
        there = library.multiply(on, q);
      });
      std::printf("linear %s %zu x %zu, %zu rows: own kernel %.1f us, library %.1f us%s\n", name(kind), outputs, inputs,
                  rows, flat * 1e6, other * 1e6, there ? "" : " (it cannot)");
    }
  }
}

/// A step of several sequences whose contexts are in one cache.
struct attention_case {
  std::unique_ptr<cuda_backend> device;
  std::unique_ptr<kv_cache> cache;
  std::vector<sequence_rows> sequences;
  std::vector<std::int32_t> tables;
  buffer qkv, out;
  std::size_t rows = 0;

  attention_case(const cuda_options& options, std::size_t blocks, kv_type type = kv_type::bf16)
    : device(make_cuda_backend(options)) {
    cache = device->make_kv_cache({1, kv_heads, head_dim, type, blocks});
    std::vector<std::uint16_t> block(cache->shape.block_bytes() / 2);
    std::generate(block.begin(), block.end(), random_bf16);
    for (std::size_t i = 0; i < blocks; ++i)
      device->restore_block(device->queue(), *cache, static_cast<std::int32_t>(i), block.data());
    device->queue().synchronise();
  }

  void add(int row_count, int position, const std::vector<std::int32_t>& table) {
    sequences.push_back(
      {static_cast<std::int32_t>(rows), row_count, position, static_cast<std::int32_t>(tables.size())});
    tables.insert(tables.end(), table.begin(), table.end());
    rows += static_cast<std::size_t>(row_count);
  }

  double measure(int calls) {
    qkv = random_floats(device->queue(), rows * columns);
    out = allocate(rows * heads * head_dim * 2);
    const tensor q{qkv.get(), dtype::f32, rows, columns, columns};
    const tensor to{out.get(), dtype::bf16, rows, heads * head_dim, heads * head_dim};
    return seconds_per_call(const_cast<stream&>(device->queue()), calls, [&](int) {
      device->attention(to, q, heads, 0.0883f, 0, *cache, 0, {sequences, tables});
    });
  }
};

std::vector<std::int32_t> consecutive(std::int32_t first, std::size_t count) {
  std::vector<std::int32_t> blocks(count);
  std::iota(blocks.begin(), blocks.end(), first);
  return blocks;
}

void decode_attention(double bandwidth) {
  struct way {
    kv_type type;
    bool deterministic;
    std::optional<float> unified_maximum;
  };
  for (const auto& [type, deterministic, unified] : {way{kv_type::bf16, false, {}},
                                                     {kv_type::bf16, true, {}},
                                                     {kv_type::bf16, false, 0.0f},
                                                     {kv_type::int8, false, {}},
                                                     {kv_type::fp8, false, {}}}) {
    const int members = 64, context = 4096, each = context / block_tokens;
    attention_case c({.deterministic = deterministic, .unified_maximum = unified}, std::size_t(members) * each, type);
    for (int i = 0; i < members; ++i)
      c.add(1, context - 1, consecutive(i * each, each));
    const double t = c.measure(4), bytes = double(members) * context * kv_heads * double(kv_bytes(type, head_dim));
    std::printf("decode attention, 64 x 4096, K and V in %s%s%s: %.1f us, %.0f %% of copy bandwidth\n", to_string(type),
                deterministic ? ", deterministic" : "", unified ? ", unified maximum" : "", t * 1e6,
                100 * bytes / t / bandwidth);
    if (type == kv_type::bf16 && !deterministic && !unified)
      report("decode attention, 64 x 4k, GQA 4:1, % of copy bandwidth", 100 * bytes / t / bandwidth, 85);
  }
}

void shared_prefix() {
  const int members = 64, common = 8192 / block_tokens, own = 128 / block_tokens;
  double time[2];
  for (const bool share : {false, true}) {
    const int each = common + own;
    attention_case c({}, std::size_t(share ? common + members * own : members * each));
    for (int i = 0; i < members; ++i) {
      auto table = consecutive(share ? 0 : i * each, static_cast<std::size_t>(common));
      const auto rest = consecutive(share ? common + i * own : i * each + common, static_cast<std::size_t>(own));
      table.insert(table.end(), rest.begin(), rest.end());
      c.add(1, 8192 + 128 - 1, table);
    }
    time[share] = c.measure(4);
  }
  std::printf("decode attention, 64 x (8192 + 128): %.1f us, with the 8192 in common %.1f us\n", time[0] * 1e6,
              time[1] * 1e6);
  report("shared-prefix decode, 64 x (8k common + 128), times faster", time[0] / time[1], 8);
}

void prefill_attention(double rate) {
  for (const bool deterministic : {false, true}) {
    const int tokens = 8192;
    attention_case c({.deterministic = deterministic}, tokens / block_tokens);
    c.add(tokens, 0, consecutive(0, tokens / block_tokens));
    const double t = c.measure(1), operations = 4.0 * heads * head_dim * (double(tokens) * (tokens + 1) / 2);
    std::printf("prefill attention, 8192%s: %.2f ms, %.0f TFLOP/s, %.0f %% of the bf16 rate\n",
                deterministic ? ", deterministic" : "", t * 1e3, operations / t / 1e12, 100 * operations / t / rate);
    if (!deterministic)
      report("prefill attention, 8k, causal, head_dim 128, % of the bf16 rate", 100 * operations / t / rate, 45);
  }
}

void sampling(stream& on) {
  const std::size_t rows = 64, vocab = 128 << 10;
  const auto logits = random_floats(on, rows * vocab), edited = allocate(rows * vocab * 4);
  const auto out = allocate(rows * sizeof(sampled_row)), memory = allocate(rows * sizeof(sampling_row));
  const auto measure = [&](auto&& set) {
    std::vector<sampling_row> samples(rows);
    for (std::size_t i = 0; i < rows; ++i) {
      samples[i].logit_row = static_cast<std::int32_t>(i);
      samples[i].seed = i;
      set(samples[i]);
    }
    copy_to_device(on, memory.get(), samples.data(), rows * sizeof(sampling_row));
    on.synchronise();
    const sampling_params p{static_cast<const float*>(logits.get()), vocab,
                            static_cast<std::int32_t>(vocab),        static_cast<const sampling_row*>(memory.get()),
                            static_cast<sampled_row*>(out.get()),    static_cast<float*>(edited.get())};
    return 1e6 * seconds_per_call(on, 4, [&](int) { sample(on, p, rows); });
  };
  const auto top_p = [](sampling_row& r) { r.top_p = static_cast<std::uint64_t>(0.9 * 0x1p32); };
  const double top_p_time = measure(top_p);
  std::printf("sampling, 64 x 131072: greedy %.1f us, top-p %.1f us, temperature and top-p %.1f us, top-k 50 %.1f us, "
              "5 log-probabilities %.1f us\n",
              measure([](sampling_row& r) { r.greedy = 1; }), top_p_time, measure([&](sampling_row& r) {
                top_p(r);
                r.inverse_temperature = 1.25f;
              }),
              measure([](sampling_row& r) { r.top_k = 50; }), measure([](sampling_row& r) { r.logprobs = 5; }));
  report("top-p sampling, 64 x 128k, us", top_p_time, 60, true);
}

} // namespace

/// Argument: first letters of the parts to run: linear, attention, sampling. Default: all. Exit status: 1 if something
/// failed, 2 for an unknown part, 77 if something was skipped.
int main(int argc, char** argv) {
  constexpr int some_skipped = 77;
  const std::string parts = argc > 1 ? argv[1] : "las";
  if (parts.find_first_not_of("las") != std::string::npos) {
    std::fprintf(stderr, "unknown part in `%s`: l is linear, a attention, s sampling\n", parts.c_str());
    return 2;
  }
  std::string why_none;
  if (device_count(&why_none) == 0) {
    std::printf("skipped, all parts: %s\n", why_none.c_str());
    return some_skipped;
  }
  bool skipped = false;
  const auto info = select_device(0);
  std::printf("%s, compute capability %d.%d, %d multiprocessors\n", info.name.c_str(), info.major, info.minor,
              info.multiprocessors);
  try {
    stream on;
    const auto library = open_gemm_library(&why_none);
    if (library)
      std::printf("%s\n", library->description().c_str());
    else
      std::printf("skipped, comparisons with the library and its bf16 rate: %s\n", why_none.c_str());
    skipped = !library;
    const auto peaks = measure_gpu(0);
    const double bandwidth = peaks.copy, rate = library ? peaks.bf16_product : NAN;
    std::printf("device copy of %zu MiB: %.2f TB/s, read and written\n", peaks.copied >> 20, bandwidth / 1e12);
    if (library)
      std::printf("cuBLASLt bf16, %zu x %zu x %zu: %.0f TFLOP/s\n", peaks.product_size, peaks.product_size,
                  peaks.product_size, rate / 1e12);
    if (parts.find('l') != std::string::npos) {
      few_rows(on, bandwidth);
      if (library)
        many_rows(on, *library);
    }
    if (parts.find('a') != std::string::npos) {
      decode_attention(bandwidth);
      shared_prefix();
      prefill_attention(rate);
    }
    if (parts.find('s') != std::string::npos)
      sampling(on);
  } catch (const std::exception& e) {
    std::printf("failed: %s\n", e.what());
    return 1;
  }
  std::printf("\n%-66s %10s %8s\n", "target", "measured", "wanted");
  for (const auto& t : targets)
    std::printf("%-66s %10.1f %s %5.1f %s\n", t.what.c_str(), t.value, t.time ? "<=" : ">=", t.limit,
                (t.time ? t.value <= t.limit : t.value >= t.limit) ? "met" : "missed");
  return skipped ? some_skipped : 0;
}
