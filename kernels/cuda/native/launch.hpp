// Kernel launches through CUDA's run-time library. The emulated build shadows this header (tests/emulation).
#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/device/common.hpp"
#include "kernels/cuda/device/simt.hpp"
#include "kernels/cuda/native/overlap.hpp"
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

/// Whether a kernel itself waits for the one before it.
template <class Kernel>
constexpr bool waits() {
  if constexpr (requires { Kernel::waits; })
    return Kernel::waits;
  else
    return false;
}

template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads, least_blocks<Kernel>())
  run_kernel(const __grid_constant__ Kernel kernel) {
  if constexpr (!waits<Kernel>())
    simt::wait_for_previous();
  kernel();
}

template <class Kernel>
void launch(const stream& on, grid_size grid, std::size_t shared_bytes, const Kernel& kernel) {
  if (shared_bytes > default_shared_bytes)
    check(cudaFuncSetAttribute(run_kernel<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes)),
          "cudaFuncSetAttribute", Kernel::name);
  cudaGetLastError(); // clears the errors of earlier calls, which have been reported
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t how{};
  how.gridDim = dim3(grid.x, grid.y);
  how.blockDim = dim3(Kernel::threads);
  how.dynamicSmemBytes = shared_bytes;
  how.stream = static_cast<cudaStream_t>(on.native());
  how.attrs = &overlap;
  how.numAttrs = overlaps_launches() ? 1 : 0;
  check(cudaLaunchKernelEx(&how, run_kernel<Kernel>, kernel), "launch", Kernel::name);
}

} // namespace troupe::kernels::cuda::native
