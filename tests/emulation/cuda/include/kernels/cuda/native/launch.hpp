// Shadows kernels/cuda/native/launch.hpp: a launch is a piece of work on an emulated stream.
#pragma once

#include "kernels/cuda/device/common.hpp"
#include "tests/emulation/cuda/fibers.hpp"
#include "tests/emulation/cuda/queues.hpp"

namespace troupe::kernels::cuda::native {

template <class Kernel>
void launch(const stream& on, grid_size grid, std::size_t shared_bytes, const Kernel& kernel) {
  emulated::check_launch(on);
  emulated::begin_launch(Kernel::name, grid.x, grid.y, Kernel::threads, shared_bytes);
  emulated::enqueue(on, [=] { emulated::run_grid(grid.x, grid.y, Kernel::threads, shared_bytes, [&] { kernel(); }); });
}

} // namespace troupe::kernels::cuda::native
