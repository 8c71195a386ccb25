// Whether launches overlap. Apart from launch.hpp, which only nvcc compiles.
#pragma once

namespace troupe::kernels::cuda::native {

/// Whether the thread's device starts a kernel's blocks while the one before it ends (programmatic dependent launch;
/// compute capability 9.0). TROUPE_CUDA_SERIAL in the environment forbids it.
bool overlaps_launches();

} // namespace troupe::kernels::cuda::native
