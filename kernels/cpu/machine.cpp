#include "kernels/cpu/machine.hpp"

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/thread_pool.hpp"

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <vector>

#if defined(__x86_64__)
#include "kernels/cpu/isa/native/tile_instructions.hpp"

#include <immintrin.h>
#endif

namespace troupe::kernels {

namespace {

struct timing {
  double best, median; // seconds
};

template <class F>
timing measure(bool one_thread, const F& f) {
  const auto now = [&] {
    timespec t;
    clock_gettime(one_thread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
  };
  std::vector<double> times;
  f();
  for (double total = 0; times.size() < 5 || (total < 0.3 && times.size() < 100);) {
    const double start = now();
    f();
    times.push_back(now() - start);
    total += times.back();
  }
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2]};
}

constexpr int loops = 500'000; // each of 16 instructions

/// A loop that keeps one instruction busy, and the operations of one such instruction.
struct dot_loop {
  void (*run)();
  double operations;
};

#if defined(__x86_64__)

[[gnu::target("avx2,fma")]] void fma_256() {
  __m256 sums[8] = {};
  for (auto& sum : sums)
    asm volatile("" : "+x"(sum)); // keeps the compiler from merging equal sums
  __m256 x = _mm256_set1_ps(0.5f);
  for (int i = 0; i < 2 * loops; ++i) {
#pragma GCC unroll 8
    for (auto& sum : sums)
      sum = _mm256_fmadd_ps(x, x, sum);
    asm volatile("" : "+x"(x));
  }
  for (auto& sum : sums)
    asm volatile("" : : "x"(sum));
}

/// A dot of four 8-bit products without VNNI.
[[gnu::target("avx2")]] void int8_256() {
  __m256i sums[8] = {};
  for (auto& sum : sums)
    asm volatile("" : "+x"(sum));
  __m256i x = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1);
  for (int i = 0; i < 2 * loops; ++i) {
#pragma GCC unroll 8
    for (auto& sum : sums) {
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(x, x), ones));
      asm volatile("" : "+x"(x), "+x"(ones)); // keeps the compiler from hoisting the products
    }
  }
  for (auto& sum : sums)
    asm volatile("" : : "x"(sum));
}

[[gnu::target("avx512f")]] void fma_512() {
  __m512 sums[16] = {};
  for (auto& sum : sums)
    asm volatile("" : "+v"(sum));
  __m512 x = _mm512_set1_ps(0.5f);
  for (int i = 0; i < loops; ++i) {
#pragma GCC unroll 16
    for (auto& sum : sums)
      sum = _mm512_fmadd_ps(x, x, sum);
    asm volatile("" : "+v"(x));
  }
  for (auto& sum : sums)
    asm volatile("" : : "v"(sum));
}

[[gnu::target("avx512f,avx512bf16")]] void bf16_512() {
  __m512 sums[16] = {};
  for (auto& sum : sums)
    asm volatile("" : "+v"(sum));
  __m512i x = _mm512_set1_epi32(0x3f003f00);
  for (int i = 0; i < loops; ++i) {
#pragma GCC unroll 16
    for (auto& sum : sums)
      sum = _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)x);
    asm volatile("" : "+v"(x));
  }
  for (auto& sum : sums)
    asm volatile("" : : "v"(sum));
}

[[gnu::target("avx512f,avx512vnni")]] void int8_512() {
  __m512i sums[16] = {};
  for (auto& sum : sums)
    asm volatile("" : "+v"(sum));
  __m512i x = _mm512_set1_epi32(0x01010101);
  for (int i = 0; i < loops; ++i) {
#pragma GCC unroll 16
    for (auto& sum : sums)
      sum = _mm512_dpbusd_epi32(sum, x, x);
    asm volatile("" : "+v"(x));
  }
  for (auto& sum : sums)
    asm volatile("" : : "v"(sum));
}

void configure_tiles() {
  tile_configuration all;
  for (int tile = 0; tile < 8; ++tile)
    all.set(tile, amx_rows, 64);
  tile_configure(all);
  tile_zero<0>();
  tile_zero<1>();
  tile_zero<2>();
  tile_zero<3>();
  tile_zero<4>();
  tile_zero<5>();
}

void bf16_tiles() {
  configure_tiles();
  for (int i = 0; i < loops / 4; ++i) {
    tile_dot_bf16<0, 4, 5>();
    tile_dot_bf16<1, 4, 5>();
    tile_dot_bf16<2, 4, 5>();
    tile_dot_bf16<3, 4, 5>();
  }
  tile_release();
}

void int8_tiles() {
  configure_tiles();
  for (int i = 0; i < loops / 4; ++i) {
    tile_dot_int8<0, 4, 5>();
    tile_dot_int8<1, 4, 5>();
    tile_dot_int8<2, 4, 5>();
    tile_dot_int8<3, 4, 5>();
  }
  tile_release();
}

[[gnu::target("avx2")]] void read_256(const std::uint64_t* p, std::size_t words) {
  __m256i sums[8] = {};
  for (std::size_t i = 0; i < words; i += 32)
    for (int j = 0; j < 8; ++j) {
      if (j % 2 == 0)
        _mm_prefetch(reinterpret_cast<const char*>(p + i + j * 4) + 1024, _MM_HINT_T0);
      sums[j] = _mm256_or_si256(sums[j], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + i + j * 4)));
    }
  for (auto& sum : sums)
    asm volatile("" : : "x"(sum));
}

[[gnu::target("avx512f")]] void read_512(const std::uint64_t* p, std::size_t words) {
  __m512i sums[8] = {};
  for (std::size_t i = 0; i < words; i += 64)
    for (int j = 0; j < 8; ++j) {
      _mm_prefetch(reinterpret_cast<const char*>(p + i + j * 8) + 4096, _MM_HINT_T0);
      sums[j] = _mm512_or_si512(sums[j], _mm512_loadu_si512(p + i + j * 8));
    }
  for (auto& sum : sums)
    asm volatile("" : : "v"(sum));
}

#endif

void read_words(const std::uint64_t* p, std::size_t words) {
  std::uint64_t sums[8] = {};
  for (std::size_t i = 0; i < words; i += 8)
    for (int j = 0; j < 8; ++j)
      sums[j] |= p[i + j];
  for (auto& sum : sums)
    asm volatile("" : : "r"(sum));
}

} // namespace

machine_peaks measure_machine(int threads, unsigned long read_bytes) {
  thread_pool pool(threads);
  const bool alone = pool.size() == 1;
  const auto available = available_isas();
  [[maybe_unused]] const auto has = [&](isa i) { return std::ranges::find(available, i) != available.end(); };
  [[maybe_unused]] const auto rate = [&](isa needed, const dot_loop& loop, double count) {
    if (!has(needed))
      return 0.0;
    const auto t = measure(alone, [&] { pool.parallel_for(pool.size(), [&](std::size_t, int) { loop.run(); }); });
    return pool.size() * count * loop.operations / t.best;
  };
  machine_peaks found;
  found.threads = pool.size();
  auto read = read_words;
#if defined(__x86_64__)
  found.f32_fma = has(isa::avx512) ? rate(isa::avx512, {fma_512, 32}, 16.0 * loops)
                                   : rate(isa::avx2, {fma_256, 16}, 16.0 * loops);
  found.bf16_dot = rate(isa::avx512_bf16, {bf16_512, 64}, 16.0 * loops);
  found.int8_dot = has(isa::avx512_vnni) ? rate(isa::avx512_vnni, {int8_512, 128}, 16.0 * loops)
    : available.back() == isa::avx2      ? rate(isa::avx2, {int8_256, 64}, 16.0 * loops)
                                         : 0;
  found.bf16_amx = rate(isa::avx512_amx, {bf16_tiles, 16 * 16 * 64}, loops);
  found.int8_amx = rate(isa::avx512_amx, {int8_tiles, 16 * 16 * 128}, loops);
  if (has(isa::avx512))
    read = read_512;
  else if (has(isa::avx2))
    read = read_256;
#endif
  constexpr std::size_t parts = 64, unit = 512; // bytes per iteration of a reading loop
  const std::size_t part = (read_bytes + parts * unit - 1) / (parts * unit) * unit;
  const auto memory = allocate_zeroed(part * parts);
  char* p = static_cast<char*>(memory.get());
  std::fill(p, p + part * parts, 1); // real pages, not the shared zero page
  const auto t = measure(alone, [&] {
    pool.parallel_for(parts, [&](std::size_t i, int) {
      read(reinterpret_cast<const std::uint64_t*>(p + part * i), part / sizeof(std::uint64_t));
    });
  });
  found.read = double(part * parts) / t.best;
  found.read_median = double(part * parts) / t.median;
  return found;
}

} // namespace troupe::kernels
