// What failed calls of CUDA's run-time library and of cuBLASLt mean, and whether the library is found.
#include "kernels/cuda/gemm_library.hpp"
#include "kernels/cuda/native/cublas_lt.hpp"
#include "tests/kernels/cuda/skips.hpp"
#include "tests/kernels/cuda/support.hpp"

#include <filesystem>
#include <fstream>

#include <unistd.h>

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

TEST_CASE("a failed call of cuBLASLt loses the device if CUDA says that its context is lost") {
  const auto refused = cuda::library_error("cublasLtMatmul", "not supported", cudaSuccess);
  CHECK_FALSE(refused.context_lost);
  CHECK(std::string(refused.what()) == "cublasLtMatmul: not supported");
  CHECK_FALSE(cuda::library_error("cublasLtMatmul", "allocation failed", cudaErrorMemoryAllocation).context_lost);
  const auto lost = cuda::library_error("cublasLtMatmul", "execution failed", cudaErrorIllegalAddress);
  CHECK(lost.context_lost);
  CHECK(std::string(lost.what()).starts_with("cublasLtMatmul: execution failed, after "));
}

TEST_CASE("a heuristic's algorithm is used only if its own state is success and its workspace fits") {
  cublasLtMatmulHeuristicResult_t result{};
  result.state = CUBLAS_STATUS_SUCCESS;
  result.workspaceSize = 100;
  CHECK(cuda::is_usable(CUBLAS_STATUS_SUCCESS, 1, result, 100));
  CHECK_FALSE(cuda::is_usable(CUBLAS_STATUS_SUCCESS, 1, result, 99));
  CHECK_FALSE(cuda::is_usable(CUBLAS_STATUS_SUCCESS, 0, result, 100));
  CHECK_FALSE(cuda::is_usable(CUBLAS_STATUS_NOT_SUPPORTED, 1, result, 100));
  result.state = CUBLAS_STATUS_NOT_SUPPORTED;
  CHECK_FALSE(cuda::is_usable(CUBLAS_STATUS_SUCCESS, 1, result, 100));
}

TEST_CASE("where cuBLASLt cannot be loaded, every place is named with its reason") {
  const auto broken = std::filesystem::temp_directory_path() / ("troupe-broken-" + std::to_string(::getpid()) + ".so");
  std::ofstream(broken) << "no library";
  cuda::cublas_lt_functions lt;
  std::string why;
  // The C library has none of the functions.
  CHECK_FALSE(lt.load({"/nowhere/libcublasLt.so.13", broken.string(), "libc.so.6"}, why));
  std::filesystem::remove(broken);
  CHECK(why.find("/nowhere/libcublasLt.so.13") != std::string::npos);
  CHECK(why.find(broken.string()) != std::string::npos);
  CHECK(why.find("libc.so.6: has no function cublasLtCreate") != std::string::npos);
  CHECK(lt.where.empty());
}

TEST_SUITE_BEGIN("cuda");

TEST_CASE("CUDA: cuBLASLt is found, and says which file it is") {
  cuda::select_device(0);
  std::string why;
  const auto library = cuda::open_gemm_library(&why);
  if (!library)
    return cuda::testing::skip_this_test(why);
  CHECK(library->description().find("libcublasLt") != std::string::npos);
  std::printf("%s\n", library->description().c_str());
}

TEST_SUITE_END();
