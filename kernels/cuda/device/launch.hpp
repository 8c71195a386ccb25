// Starts kernels. A kernel is a struct: its fields are its parameters, `operator()` is what each thread does, `threads`
// is the size of its blocks.
#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/device/simt.hpp"

#ifdef __CUDACC__
#include "kernels/cuda/native/status.hpp"
#else
#include "tests/emulation/cuda/queues.hpp"
#endif

namespace troupe::kernels::cuda {

template <class T>
constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

#ifdef __CUDACC__

template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads) run_kernel(const __grid_constant__ Kernel kernel) {
  kernel();
}

/// Queues a kernel over a grid of blocks with `shared_bytes` of shared memory each. An empty grid is no launch.
template <class Kernel>
void launch(const stream& on, grid_size grid, std::size_t shared_bytes, const Kernel& kernel) {
  if (grid.x == 0 || grid.y == 0)
    return;
  if (shared_bytes > 48 << 10)
    check(cudaFuncSetAttribute(run_kernel<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes)),
          "cudaFuncSetAttribute", Kernel::name);
  cudaGetLastError(); // of calls before, whose callers have been told
  run_kernel<Kernel>
    <<<dim3(grid.x, grid.y), Kernel::threads, shared_bytes, static_cast<cudaStream_t>(on.native())>>>(kernel);
  check(cudaGetLastError(), "launch", Kernel::name);
}

#else

template <class Kernel>
void launch(const stream& on, grid_size grid, std::size_t shared_bytes, const Kernel& kernel) {
  if (grid.x == 0 || grid.y == 0)
    return;
  emulated::begin_launch(Kernel::name, grid.x, grid.y, Kernel::threads, shared_bytes);
  emulated::enqueue(on, [=] { emulated::run_grid(grid.x, grid.y, Kernel::threads, shared_bytes, [&] { kernel(); }); });
}

#endif

} // namespace troupe::kernels::cuda
