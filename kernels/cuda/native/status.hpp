// Turns failed CUDA calls into device_error that names the call.
#pragma once

#include "kernels/ops.hpp"

#include <cuda_runtime.h>

#include <string>

namespace troupe::kernels::cuda {

/// Whether the context is lost, so that nothing works any more in this process: errors for which the documentation of
/// enum cudaError demands that "the process must be terminated and relaunched", hardware failures, and a missing
/// context. All other errors concern a single call and leave the context intact.
inline bool is_lost(cudaError_t status) {
  switch (static_cast<int>(status)) {
    case cudaErrorCudartUnloading:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case 226: // cudaErrorContained, unknown to older toolkits
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case 721: // cudaErrorTensorMemoryLeak, unknown to older toolkits
    case cudaErrorMpsClientTerminated:
    case 911: // cudaErrorExternalDevice
    case cudaErrorUnknown: return true;
    default: return false;
  }
}

inline void check(cudaError_t status, const char* call, const char* of = nullptr) {
  if (status != cudaSuccess)
    throw device_error(std::string(call) + (of ? std::string(" (") + of + ")" : "") + ": " + cudaGetErrorString(status),
                       is_lost(status));
}

} // namespace troupe::kernels::cuda
