// Starts kernels. A kernel is a struct: its fields are its parameters, `operator()` is the code of a thread, `threads`
// the size of a block, `name` its name in errors, `least_blocks`, if there is one, what its registers must allow per
// multiprocessor. A kernel begins when those before it are done, unless it `waits` itself (simt::wait_for_previous).
#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/device/simt.hpp"
#include "kernels/cuda/native/launch.hpp"

namespace troupe::kernels::cuda {

/// Queues a kernel over a grid of blocks with `shared_bytes` of shared memory each. An empty grid is no launch. Throws
/// device_error if the device refuses the launch.
template <class Kernel>
void launch(const stream& on, grid_size grid, std::size_t shared_bytes, const Kernel& kernel) {
  if (grid.x > 0 && grid.y > 0)
    native::launch(on, grid, shared_bytes, kernel);
}

} // namespace troupe::kernels::cuda
