// Turns failed CUDA calls into device_error with the call's name.
#pragma once

#include "kernels/ops.hpp"

#include <cuda_runtime.h>

#include <string>

namespace troupe::kernels::cuda {

/// Errors of single calls leave the context as it was; after those of kernels and of the device nothing works any more.
inline bool is_lost(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorGraphExecUpdateFailure: return false;
    default: return true;
  }
}

inline void check(cudaError_t status, const char* call, const char* of = nullptr) {
  if (status != cudaSuccess)
    throw device_error(std::string(call) + (of ? std::string(" (") + of + ")" : "") + ": " + cudaGetErrorString(status),
                       is_lost(status));
}

} // namespace troupe::kernels::cuda
