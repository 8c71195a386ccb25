// Turns failed CUDA calls into device_error with the call's name.
#pragma once

#include "kernels/ops.hpp"

#include <cuda_runtime.h>

#include <string>

namespace troupe::kernels::cuda {

inline void check(cudaError_t status, const char* call, const char* of = nullptr) {
  if (status != cudaSuccess)
    throw device_error(std::string(call) + (of ? std::string(" (") + of + ")" : "") + ": " +
                       cudaGetErrorString(status));
}

} // namespace troupe::kernels::cuda
