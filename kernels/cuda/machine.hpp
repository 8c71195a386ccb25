// What a GPU can do at most, measured: copying its memory, and the library's products in bf16. Kernels and models are
// judged by it in the same run. Called by a thread that has selected the device, while nothing else should run there.
#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/graph.hpp"

#include <algorithm>
#include <vector>

namespace troupe::kernels::cuda {

struct gpu_peaks {
  double copy = 0;              // bytes per second, of which half are read and half are written
  double bf16_product = 0;      // operations per second (a multiplication and an addition are two); 0: no library
  std::size_t copied = 0;       // bytes, each time
  std::size_t product_size = 0; // rows, outputs and inputs
};

/// Takes about a second, and at most half of the free memory: copies and products have the sizes that device_info names,
/// or as much of them as there is room for. Throws device_error.
gpu_peaks measure_gpu(int device);

/// Seconds of one call of `work`, which gets the number of the call: `calls` of them are recorded, and replayed
/// `replays` times after the first three. The median.
template <class F>
double seconds_per_call(stream& on, int calls, const F& work, int replays = 20) {
  work(0); // plans and choices are made here
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

/// Device memory full of normal numbers in bf16: of zeros alone, products take less power and run faster.
buffer random_bf16_memory(const stream& on, std::size_t bytes);

} // namespace troupe::kernels::cuda
