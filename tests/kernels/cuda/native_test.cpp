// The meaning of failed calls of CUDA's run-time library.
#include "kernels/cuda/native/status.hpp"
#include "tests/kernels/cuda/support.hpp"

using namespace troupe::kernels;

TEST_CASE("without a CUDA device, one sentence says why") {
  std::string why;
  if (cuda::device_count(&why) > 0)
    CHECK(why.empty());
  else
    CHECK(why.find("NVIDIA driver") != std::string::npos);
}

TEST_CASE("failed calls lose the device only if the library's documentation says so") {
  for (const auto status :
       {cudaErrorIllegalAddress, cudaErrorLaunchTimeout, cudaErrorAssert, cudaErrorHardwareStackError,
        cudaErrorIllegalInstruction, cudaErrorMisalignedAddress, cudaErrorInvalidAddressSpace, cudaErrorInvalidPc,
        cudaErrorLaunchFailure, cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable, cudaErrorContextIsDestroyed,
        cudaErrorUnknown}) {
    CAPTURE(cudaGetErrorName(status));
    CHECK(cuda::is_lost(status));
  }
  for (const auto status : {cudaErrorInvalidValue, cudaErrorInvalidPitchValue, cudaErrorInvalidDevicePointer,
                            cudaErrorInvalidMemcpyDirection, cudaErrorInvalidDevice, cudaErrorInvalidResourceHandle,
                            cudaErrorMemoryAllocation, cudaErrorInvalidConfiguration, cudaErrorInvalidDeviceFunction,
                            cudaErrorNoKernelImageForDevice, cudaErrorLaunchOutOfResources, cudaErrorNotSupported,
                            cudaErrorStreamCaptureUnsupported, cudaErrorStreamCaptureInvalidated}) {
    CAPTURE(cudaGetErrorName(status));
    CHECK_FALSE(cuda::is_lost(status));
  }
}
