// Measures the peaks of a GPU: the bandwidth of a memory copy, and the rate of the library's bf16 products. Kernels and
// models are compared with peaks of the same run. Called by a thread that has selected the device, which should be
// idle.
#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/graph.hpp"

#include <algorithm>
#include <vector>

namespace troupe::kernels::cuda {

struct gpu_peaks {
  double copy = 0;              // bytes per second, read and written bytes added
  double bf16_product = 0;      // operations per second, multiplications and additions; 0: no library
  std::size_t copied = 0;       // bytes of a copy
  std::size_t product_size = 0; // rows, outputs and inputs
};

/// Takes about a second, and at most half of the free memory: sizes are those of device_info, or what fits. Throws
/// device_error.
gpu_peaks measure_gpu(int device);

/// Seconds of one call of work(i). Records work(0) to work(calls - 1), replays them three times to warm up, then
/// `replays` times; returns the median.
template <class F>
double seconds_per_call(stream& on, int calls, const F& work, int replays = 20) {
  work(0); // uploads plans and makes choices, which a recording cannot
  on.synchronise();
  const graph recorded(on, [&] {
    for (int i = 0; i < calls; ++i)
      work(i);
  });
  std::vector<double> times;
  for (int i = -3; i < replays; ++i) {
    on.start_timer();
    recorded.replay(on);
    const double t = on.stop_timer() * 1e-3 / calls;
    if (i >= 0)
      times.push_back(t);
  }
  std::nth_element(times.begin(), times.begin() + replays / 2, times.end());
  return times[static_cast<std::size_t>(replays / 2)];
}

/// Device memory filled with normally distributed bf16. Products of zeros take less power, so they would run faster.
buffer random_bf16_memory(const stream& on, std::size_t bytes);

} // namespace troupe::kernels::cuda
