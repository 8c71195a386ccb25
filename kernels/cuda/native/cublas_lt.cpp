#include "kernels/cuda/native/cublas_lt.hpp"

#include <dlfcn.h>

#include <type_traits>

namespace troupe::kernels::cuda {

namespace {

/// What CUDA says of the context: an error that has lost it is the answer to every call. Allowed in recordings.
cudaError_t state_of_context() {
  std::size_t available = 0, all = 0;
  const auto status = cudaMemGetInfo(&available, &all);
  cudaGetLastError(); // is reported by the caller
  return status;
}

} // namespace

bool cublas_lt_functions::load(const std::vector<std::string>& places, std::string& why_none) {
  why_none.clear();
  const auto refuse = [&](const std::string& why) { why_none += (why_none.empty() ? "" : "; ") + why; };
  for (const auto& place : places) {
    dlerror();
    void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* why = dlerror();
      refuse(why != nullptr ? why : place + ": cannot be loaded");
      continue;
    }
    const char* missing = nullptr;
    const auto find = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
      if (function == nullptr && missing == nullptr)
        missing = symbol;
    };
    find(create, "cublasLtCreate");
    find(destroy, "cublasLtDestroy");
    find(version, "cublasLtGetVersion");
    find(status_string, "cublasLtGetStatusString");
    find(desc_create, "cublasLtMatmulDescCreate");
    find(desc_destroy, "cublasLtMatmulDescDestroy");
    find(desc_set, "cublasLtMatmulDescSetAttribute");
    find(layout_create, "cublasLtMatrixLayoutCreate");
    find(layout_destroy, "cublasLtMatrixLayoutDestroy");
    find(preference_create, "cublasLtMatmulPreferenceCreate");
    find(preference_destroy, "cublasLtMatmulPreferenceDestroy");
    find(preference_set, "cublasLtMatmulPreferenceSetAttribute");
    find(heuristic, "cublasLtMatmulAlgoGetHeuristic");
    find(matmul, "cublasLtMatmul");
    if (missing == nullptr) {
      Dl_info info{};
      where = dladdr(reinterpret_cast<void*>(create), &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : place;
      return true;
    }
    refuse(place + ": has no function " + missing);
    dlclose(library);
  }
  return false;
}

void cublas_lt_functions::check(cublasStatus_t status, const char* call) const {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw library_error(call, status_string(status), state_of_context());
}

std::string cublas_lt_name() { return "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR); }

device_error library_error(const char* call, const char* text, cudaError_t context) {
  const bool lost = is_lost(context);
  return device_error(
    std::string(call) + ": " + text + (lost ? std::string(", after ") + cudaGetErrorString(context) : ""), lost);
}

bool is_usable(cublasStatus_t asked, int found, const cublasLtMatmulHeuristicResult_t& result,
               std::size_t workspace_bytes) {
  return asked == CUBLAS_STATUS_SUCCESS && found > 0 && result.state == CUBLAS_STATUS_SUCCESS &&
    result.workspaceSize <= workspace_bytes;
}

} // namespace troupe::kernels::cuda
