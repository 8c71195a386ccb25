// Shared by the kernel benches: a clock, and tensors of random numbers.
#pragma once

#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/machine.hpp"
#include "kernels/ops.hpp"

#include <algorithm>
#include <ctime>
#include <random>
#include <vector>

namespace troupe::bench {

/// Makes `now` measure the thread's CPU time, which other processes affect less.
inline bool one_thread = false;

/// Seconds.
inline double now() {
  timespec t;
  clock_gettime(one_thread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

struct timing {
  double best, median; // seconds
};

/// Calls `f` repeatedly for about half a second, at least 5 and at most 200 times, after an unmeasured first call.
template <class F>
timing measure(const F& f) {
  std::vector<double> times;
  f();
  for (double total = 0; times.size() < 5 || (total < 0.5 && times.size() < 200);) {
    const double start = now();
    f();
    times.push_back(now() - start);
    total += times.back();
  }
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2]};
}

/// Numbers in [-1, 1].
inline std::vector<float> random_floats(std::size_t n) {
  std::minstd_rand engine(1);
  std::vector<float> x(n);
  for (float& v : x)
    v = float(engine() % 2001) / 1000 - 1;
  return x;
}

struct device_tensor {
  kernels::buffer memory;
  kernels::tensor view;
  device_tensor(kernels::backend& device, kernels::dtype type, std::size_t rows, std::size_t cols)
    : memory(device.allocate(rows * cols * size_of(type))), view{memory.get(), type, rows, cols, cols} {}
};

/// Measures techniques of attention against doing without, a line of JSON for each.
void attention_techniques(const kernels::cpu_options& options);

/// Prints the bytes and operations of a prompt's attention in three passes and by tiles, beside those published.
void attention_bytes(const kernels::cpu_options& options);

/// Measures decoding from caches by the type of K and V.
void attention_codes(kernels::backend& device);

/// Measures what not reading values of small weights gains.
void attention_thresholds(kernels::backend& device);

/// The gain of common prefixes by their length.
void attention_prefixes(kernels::backend& device);

/// Measures attention at long contexts, and for many sequences with a common prompt.
void attention(kernels::backend& device, const kernels::machine_peaks& peak);

} // namespace troupe::bench
