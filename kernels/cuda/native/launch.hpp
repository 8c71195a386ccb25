// Kernel launches through CUDA's run-time library. The emulated build shadows this header (tests/emulation).
#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/device/common.hpp"
#include "kernels/cuda/native/status.hpp"

namespace troupe::kernels::cuda::native {

/// Dynamic shared memory of a block that needs no opt-in.
inline constexpr std::size_t default_shared_bytes = 48 << 10;

/// Blocks of a kernel that a multiprocessor's registers must allow.
template <class Kernel>
constexpr unsigned least_blocks() {
  if constexpr (requires { Kernel::least_blocks; })
    return Kernel::least_blocks;
  else
    return 1;
}

template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads, least_blocks<Kernel>())
  run_kernel(const __grid_constant__ Kernel kernel) {
  kernel();
}

template <class Kernel>
void launch(const stream& on, grid_size grid, std::size_t shared_bytes, const Kernel& kernel) {
  if (shared_bytes > default_shared_bytes)
    check(cudaFuncSetAttribute(run_kernel<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes)),
          "cudaFuncSetAttribute", Kernel::name);
  cudaGetLastError(); // clears the errors of earlier calls, which have been reported
  run_kernel<Kernel>
    <<<dim3(grid.x, grid.y), Kernel::threads, shared_bytes, static_cast<cudaStream_t>(on.native())>>>(kernel);
  check(cudaGetLastError(), "launch", Kernel::name);
}

} // namespace troupe::kernels::cuda::native
