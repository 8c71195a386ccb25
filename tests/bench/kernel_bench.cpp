// Measures the CPU kernels against the machine's peaks from the same run: dot rates in registers and memory reads.
// Prints one line per case with the best and the median of several repetitions. With one thread the clock is that
// thread's CPU time, which other processes disturb little.
#include "kernels/activation_sparsity.hpp"
#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/machine.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "kernels/formats/pruned_weights.hpp"
#include "tests/bench/measure.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace troupe::kernels;
using namespace troupe::bench;

namespace {

/// Numbers in [-1, 1] as bits of `type`.
std::vector<std::uint16_t> random_halves(std::size_t n, dtype type) {
  std::minstd_rand engine(1);
  std::vector<std::uint16_t> x(n);
  for (auto& v : x)
    v = static_cast<std::uint16_t>((type == dtype::f16 ? 0x3000 : 0x3e00) + engine() % 512 + (engine() & 0x8000));
  return x;
}

/// Rows of random blocks with scales near 1, or of numbers in [-1, 1].
std::vector<std::uint8_t> random_weights(weight_format format, std::size_t rows, std::size_t cols) {
  std::vector<std::uint8_t> to(rows * row_bytes(format, cols));
  if (format == weight_format::f32) {
    const auto x = random_floats(rows * cols);
    std::memcpy(to.data(), x.data(), to.size());
  } else if (is_float(format)) {
    const auto x = random_halves(rows * cols, dtype_of(format));
    std::memcpy(to.data(), x.data(), to.size());
  } else {
    std::minstd_rand engine(1);
    const int bits = has_codebook(traits_of(format).on_cpu) ? 0xff : 0x3f; // any places; their scales may be anything
    for (auto& byte : to)
      byte = static_cast<std::uint8_t>(engine() >> 8 & bits);
  }
  return to;
}

std::vector<weight_format> grouped_formats() {
  std::vector<weight_format> all;
  for (const auto& traits : weight_formats)
    if (has_groups(traits.format))
      all.push_back(traits.format);
  return all;
}

void linear(backend& device, const machine_peaks& peak, weight_format stored, dtype compute,
            quantization how = quantization::none) {
  const std::size_t inputs = 2048, outputs = 8192, most = 512;
  const auto data = random_weights(stored, outputs, inputs);
  // Several copies, so that single rows stream from memory rather than from a cache.
  std::vector<std::unique_ptr<matrix>> copies;
  const stored_matrix w{data.data(), stored, outputs, inputs};
  for (int i = 0; i < 16; ++i)
    copies.push_back(device.pack({&w, 1}, compute, how));
  device_tensor in(device, compute, most, inputs), out(device, dtype::f32, most, outputs);
  if (compute == dtype::f32) {
    const auto x = random_floats(most * inputs);
    std::copy(x.begin(), x.end(), static_cast<float*>(in.view.data));
  } else {
    const auto x = random_halves(most * inputs, dtype::bf16);
    std::copy(x.begin(), x.end(), static_cast<std::uint16_t*>(in.view.data));
  }
  const bool quantised = has_groups(stored) || (how != quantization::none && how != quantization::fp8);
  const double limit = quantised ? std::max(peak.int8_dot, peak.int8_amx)
    : compute == dtype::f32      ? peak.f32_fma
                                 : std::max({peak.f32_fma, peak.bf16_dot, peak.bf16_amx});
  const double bytes = double(copies[0]->bytes);
  std::printf("linear %s%s as %s, %.3f B/weight:", to_string(stored),
              how == quantization::int8     ? " to int8"
                : how == quantization::int4 ? " to int4"
                                            : "",
              to_string(compute), bytes / double(inputs * outputs));
  std::size_t next = 0;
  for (const std::size_t rows : {1, 2, 4, 8, 16, 32, 128, 512}) {
    in.view.rows = out.view.rows = rows;
    const auto t = measure([&] { device.linear(out.view, in.view, *copies[next++ % copies.size()]); });
    const double operations = 2.0 * rows * inputs * outputs;
    std::printf("  %zu: %.0f Gop/s %.1f GB/s", rows, operations / t.best / 1e9, bytes / t.best / 1e9);
    if (rows <= 4)
      std::printf(" (%.0f%%, median %.0f%% of read)", 100 * bytes / t.best / peak.read,
                  100 * bytes / t.median / peak.read);
    else
      std::printf(" (%.0f%%, median %.0f%% of peak)", 100 * operations / t.best / limit,
                  100 * operations / t.median / limit);
    std::fflush(stdout);
  }
  std::printf("\n");
}

/// Some formats in turn with another: how many times as fast they are, medians of neighbours.
void beside(backend& device, weight_format with, dtype compute, const std::vector<weight_format>& formats) {
  const std::size_t inputs = 2048, outputs = 8192, most = 512, rounds = 15;
  device_tensor in(device, compute, most, inputs), out(device, dtype::f32, most, outputs);
  const auto x = random_weights(format_of(compute), most, inputs);
  std::copy(x.begin(), x.end(), static_cast<std::uint8_t*>(in.view.data));
  const auto packed = [&](weight_format format, std::size_t copies) {
    const auto data = random_weights(format, outputs, inputs);
    const stored_matrix w{data.data(), format, outputs, inputs};
    std::vector<std::unique_ptr<matrix>> all; // more than caches hold
    for (std::size_t i = 0; i < copies; ++i)
      all.push_back(device.pack({&w, 1}, compute));
    return all;
  };
  const auto first = packed(with, 10);
  for (const auto format : formats) {
    const auto others = packed(format, 16);
    const double bits = 8.0 / double(inputs * outputs);
    std::printf("%s: %.2f bits stored, %.2f packed (%s %.2f), times as fast:", to_string(format),
                bits * double(outputs * row_bytes(format, inputs)), bits * double(others[0]->bytes), to_string(with),
                bits * double(first[0]->bytes));
    for (const std::size_t rows : {1, 2, 8, 32, 512}) {
      in.view.rows = out.view.rows = rows;
      const std::size_t products = rows == 512 ? 1 : 10;
      const auto seconds = [&](const auto& weights) {
        const double start = now();
        for (std::size_t i = 0; i < products; ++i)
          device.linear(out.view, in.view, *weights[i % weights.size()]);
        return now() - start;
      };
      std::vector<double> ratios;
      for (std::size_t i = 0; i < (rows == 512 ? rounds / 3 : rounds); ++i) {
        const double before = seconds(first), time = seconds(others), after = seconds(first);
        ratios.push_back((before + after) / 2 / time);
      }
      std::sort(ratios.begin(), ratios.end());
      std::printf("  %zu: %.2f (%.2f to %.2f)", rows, ratios[ratios.size() / 2], ratios.front(), ratios.back());
      std::fflush(stdout);
    }
    std::printf("\n");
  }
}

/// The down projection behind ReLU: what skipping the weights of zeros gains, by their share and the rows of a step.
/// `in_word`: inputs that are skipped together.
void sparse(backend& device, const machine_peaks& peak, weight_format stored, dtype compute, int in_word) {
  const std::size_t inputs = 8192, outputs = 2048, most = 8, patterns = 7;
  const auto data = random_weights(stored, outputs, inputs);
  std::vector<std::unique_ptr<matrix>> copies; // more than caches hold
  const stored_matrix w{data.data(), stored, outputs, inputs};
  for (int i = 0; i < 12; ++i)
    copies.push_back(device.pack({&w, 1}, compute));
  device_tensor in(device, compute, patterns * most, inputs), out(device, dtype::f32, most, outputs);
  const double bytes = double(copies[0]->bytes);
  std::printf("down projection of %s as %s, %zu x %zu, %.1f MB:\n", to_string(stored), to_string(compute), inputs,
              outputs, bytes / 1e6);
  std::size_t next = 0;
  std::vector<double> dense(most + 1);
  for (const double zeros : {0.0, 0.5, 0.8, 0.9, 0.97}) {
    std::minstd_rand engine(1);
    for (std::size_t i = 0; i < patterns * most * inputs; ++i) {
      const bool zero = engine() % 10000 < zeros * 10000;
      if (compute == dtype::f32)
        static_cast<float*>(in.view.data)[i] = zero ? 0 : 0.5f;
      else
        static_cast<std::uint16_t*>(in.view.data)[i] = zero ? 0 : 0x3f00;
    }
    std::printf("  %2.0f %% zeros:", 100 * zeros);
    for (const std::size_t rows : {1, 2, 4, 8}) {
      in.view.rows = out.view.rows = rows;
      const auto t = measure([&] {
        auto from = in.view; // other zeros each time: the weights of the same ones would stay in caches
        from.data = static_cast<char*>(from.data) + next % patterns * most * inputs * size_of(compute);
        device.linear(out.view, from, *copies[next++ % copies.size()]);
      });
      if (zeros == 0)
        dense[rows] = t.best;
      const double needed = 1 - std::pow(zeros, double(in_word) * double(rows)); // share of the weights
      std::printf("  %zu: %.0f us, %.2f x (ideal %.2f), %.1f GB/s of what is needed (%.0f%% of read)", rows,
                  t.best * 1e6, dense[rows] / t.best, 1 / needed, needed * bytes / t.best / 1e9,
                  100 * needed * bytes / t.best / peak.read);
      std::fflush(stdout);
    }
    std::printf("\n");
  }
  in.view.rows = 1;
  const auto values = random_floats(inputs);
  auto& sparsity = dynamic_cast<activation_sparsity&>(device);
  const auto t = measure([&] {
    for (std::size_t i = 0; i < inputs; ++i) // copied each time: zeros are cheaper
      if (compute == dtype::f32)
        static_cast<float*>(in.view.data)[i] = values[i];
      else
        static_cast<std::uint16_t*>(in.view.data)[i] = static_cast<std::uint16_t>(
          std::bit_cast<std::uint32_t>(values[i]) >> 16);
    sparsity.drop_smallest(in.view, 0.7f, *copies[0]);
  });
  std::printf("  making zeros of 70 %% of a row: %.1f us, copying included\n", t.best * 1e6);
}

/// A matrix of which 2 of every 4 weights are stored against the same with the zeros, in turn.
void pruned(backend& device, const machine_peaks& peak, dtype compute) {
  const std::size_t inputs = 2048, outputs = 8192, most = 512;
  std::vector<std::uint8_t> stored(outputs * row_bytes(weight_format::bf16_24, inputs));
  std::vector<std::uint16_t> zeros(outputs * inputs);
  std::minstd_rand engine(1);
  constexpr int places[6][2] = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
  for (std::size_t four = 0; four < zeros.size() / 4; ++four) {
    const auto& [first, second] = places[engine() % 6];
    const auto row = four / (inputs / 4);
    store_pruned_pair(weight_format::bf16_24, &stored[row * row_bytes(weight_format::bf16_24, inputs)],
                      four % (inputs / 4), {0.5f, -0.25f, first, second});
    zeros[4 * four + static_cast<std::size_t>(first)] = 0x3f00;
    zeros[4 * four + static_cast<std::size_t>(second)] = 0xbe80;
  }
  const stored_matrix part{stored.data(), weight_format::bf16_24, outputs, inputs},
    whole{zeros.data(), weight_format::bf16, outputs, inputs};
  std::vector<std::unique_ptr<matrix>> pruned, dense; // more than caches hold
  for (int i = 0; i < 8; ++i) {
    pruned.push_back(device.pack({&part, 1}, compute));
    dense.push_back(device.pack({&whole, 1}, compute));
  }
  device_tensor in(device, compute, most, inputs), out(device, dtype::f32, most, outputs);
  const auto x = random_floats(most * inputs);
  for (std::size_t i = 0; i < x.size(); ++i)
    if (compute == dtype::f32)
      static_cast<float*>(in.view.data)[i] = x[i];
    else
      static_cast<std::uint16_t*>(in.view.data)[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x[i]) >>
                                                                                16);
  std::printf("2 of 4 weights in bf16 as %s, %zu x %zu, %.3f of the dense bytes:\n", to_string(compute), inputs,
              outputs, double(pruned[0]->bytes) / double(dense[0]->bytes));
  std::size_t next = 0;
  for (const std::size_t rows : {1, 2, 4, 8, 16, 32, 128, 512}) {
    in.view.rows = out.view.rows = rows;
    std::vector<double> ratios, times;
    for (int round = 0; round < 5; ++round) {
      const auto a = measure([&] { device.linear(out.view, in.view, *dense[next++ % dense.size()]); });
      const auto b = measure([&] { device.linear(out.view, in.view, *pruned[next++ % pruned.size()]); });
      ratios.push_back(a.median / b.median);
      times.push_back(b.best);
    }
    std::ranges::sort(ratios);
    const auto best = *std::ranges::min_element(times);
    std::printf("  %zu rows: %.2f x dense (%.2f to %.2f), %.0f us, %.0f %% of read\n", rows, ratios[2], ratios.front(),
                ratios.back(), best * 1e6, 100 * double(pruned[0]->bytes) / best / peak.read);
    std::fflush(stdout);
  }
}

/// The data-flow table of FlashDecoding++ (Hong et al. 2024): the time of products by their rows, as they are computed, and by
/// what another choice of implementation would be: one row at a time (GEMV), tiles of few rows one after the other (flat
/// GEMM), and tiles filled with zeros (a GEMM for many rows). All give the same bits. Ratios above 1: the choice is right.
void choices(backend& device, weight_format stored) {
  const std::size_t inputs = 2048, outputs = 8192, most = 192, rounds = 7;
  constexpr std::size_t flat = 6, full = 48;
  const auto data = random_weights(stored, outputs, inputs);
  const stored_matrix w{data.data(), stored, outputs, inputs};
  std::vector<std::unique_ptr<matrix>> copies; // more than caches hold
  for (int i = 0; i < 10; ++i)
    copies.push_back(device.pack({&w, 1}, dtype::bf16));
  device_tensor in(device, dtype::bf16, most, inputs), out(device, dtype::f32, most, outputs);
  const auto x = random_halves(most * inputs, dtype::bf16);
  std::copy(x.begin(), x.end(), static_cast<std::uint16_t*>(in.view.data));
  const auto time_of = [&](std::size_t rows, std::size_t at_once) {
    const double start = now();
    for (const auto& copy : copies)
      for (std::size_t first = 0; first < rows; first += at_once) {
        const auto part = [&](const tensor& t) {
          return tensor{static_cast<char*>(t.data) + first * t.stride * size_of(t.type), t.type,
                        std::min(at_once, rows - first), t.cols, t.stride};
        };
        device.linear(part(out.view), part(in.view), *copy);
      }
    return (now() - start) / double(copies.size());
  };
  std::printf("%s, %zu x %zu, by rows: us; times as long one row at a time; %zu at a time; filled to %zu\n",
              to_string(stored), inputs, outputs, flat, full);
  for (const std::size_t rows : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96, 192}) {
    std::vector<double> times, single, tiles, filled;
    for (std::size_t round = 0; round < rounds; ++round) {
      const double t = time_of(rows, rows);
      times.push_back(t);
      single.push_back(rows == 1 ? 1 : time_of(rows, 1) / t);
      tiles.push_back(rows <= flat ? 1 : time_of(rows, flat) / t);
      filled.push_back(rows >= full ? 1 : time_of(full, full) / t);
    }
    for (auto* each : {&times, &single, &tiles, &filled})
      std::ranges::sort(*each);
    std::printf("  %3zu: %6.0f us  %5.2f  %5.2f  %5.2f\n", rows, times[rounds / 2] * 1e6, single[rounds / 2],
                tiles[rounds / 2], filled[rounds / 2]);
    std::fflush(stdout);
  }
}

/// Each task waits for all others, so every thread must take one.
void barrier(thread_pool& pool) {
  constexpr int loops = 1000;
  const auto t = measure([&] {
    for (int i = 0; i < loops; ++i) {
      std::atomic<int> missing = pool.size();
      pool.parallel_for(static_cast<std::size_t>(pool.size()), [&](std::size_t, int) {
        --missing;
        while (missing > 0)
          std::this_thread::yield();
      });
    }
  });
  std::printf("parallel_for with all threads: %.2f us (median %.2f)\n", t.best * 1e6 / loops, t.median * 1e6 / loops);
}

} // namespace

/// Arguments: threads (default: all cores), target (default: the best), cases (default: all): attention, codes,
/// prefixes, threshold, sparse, inputs, pruned, int4; only if named: beside, rows, traffic;
/// the name of a weight format, or f32 for all products in f32.
int main(int argc, char** argv) {
  cpu_options options;
  options.threads = argc > 1 ? std::atoi(argv[1]) : 0;
  one_thread = options.threads == 1;
  for (const isa target : available_isas())
    if (argc > 2 && to_string(target) == argv[2])
      options.target = target;
  const std::string_view only = argc > 3 ? argv[3] : "";
  const auto wanted = [&](std::string_view name) { return only.empty() || only == name; };

  if (only == "traffic") {
    attention_bytes(options);
    return 0;
  }
  if (only == "techniques") {
    attention_techniques(options);
    return 0;
  }
  const auto peak = measure_machine(options.threads);
  std::printf("peaks, %d threads: f32 FMA %.0f GFLOP/s, bf16 dot %.0f, AMX %.0f GFLOP/s, "
              "int8 dot %.0f, AMX %.0f Gop/s, read %.1f GB/s (median %.1f)\n",
              peak.threads, peak.f32_fma / 1e9, peak.bf16_dot / 1e9, peak.bf16_amx / 1e9, peak.int8_dot / 1e9,
              peak.int8_amx / 1e9, peak.read / 1e9, peak.read_median / 1e9);
  {
    thread_pool pool(options.threads);
    barrier(pool);
  }
  const auto device = make_cpu_backend(options);
  std::printf("%s\n", device->description().c_str());
  if (wanted("attention"))
    attention(*device, peak);
  if (wanted("codes"))
    attention_codes(*device);
  if (wanted("prefixes"))
    attention_prefixes(*device);
  if (wanted("threshold"))
    attention_thresholds(*device);
  for (const auto format : grouped_formats())
    if (wanted(to_string(format)))
      linear(*device, peak, format, dtype::bf16);
  if (only == "beside")
    beside(*device, weight_format::q4_k, dtype::f32, grouped_formats());
  if (only == "beside bf16")
    beside(*device, weight_format::bf16, dtype::bf16,
           {weight_format::fp8, weight_format::fp8_128, weight_format::fp8_32});
  if (only == "rows")
    for (const auto stored : {weight_format::bf16, weight_format::q8_0, weight_format::q4_k})
      choices(*device, stored);
  if (wanted("sparse"))
    for (const auto& [stored, compute] :
         {std::pair{weight_format::bf16, dtype::bf16}, {weight_format::f32, dtype::f32}})
      sparse(*device, peak, stored, compute, compute == dtype::bf16 && find_target(options.target).pairs ? 2 : 1);
  if (wanted("pruned"))
    for (const dtype compute : {dtype::f32, dtype::bf16})
      pruned(*device, peak, compute);
  if (wanted("int4"))
    linear(*device, peak, weight_format::f32, dtype::bf16, quantization::int4);
  for (const auto stored : {weight_format::bf16, weight_format::fp8, weight_format::fp8_128})
    if (wanted(to_string(stored)))
      linear(*device, peak, stored, dtype::bf16);
  for (const auto stored : {weight_format::f32, weight_format::f16, weight_format::bf16, weight_format::fp8})
    if (wanted("f32"))
      linear(*device, peak, stored, dtype::f32);
}
