// cuBLASLt's functions, found at run time, and what their results mean.
#pragma once

#include "kernels/cuda/native/status.hpp"

#include <cublasLt.h>

#include <string>
#include <vector>

namespace troupe::kernels::cuda {

/// The functions that are used, from the major version that this was compiled against.
struct cublas_lt_functions {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetVersion) version = nullptr;
  decltype(&cublasLtGetStatusString) status_string = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  std::string where; // the file that was loaded

  /// Loads the first of `places` that has all functions; it stays loaded. False if none has; `why_none` then says for
  /// each place what the loader said.
  bool load(const std::vector<std::string>& places, std::string& why_none);

  /// Throws device_error, which says whether the context is lost.
  void check(cublasStatus_t status, const char* call) const;
};

/// The file's name, with the major version.
std::string cublas_lt_name();

/// The error of a failed call. `context`: what CUDA says of the context afterwards, because the library's own codes do
/// not tell a call that failed from a context that is lost.
device_error library_error(const char* call, const char* text, cudaError_t context);

/// Whether a heuristic has given an algorithm that can be run with so much workspace.
bool is_usable(cublasStatus_t asked, int found, const cublasLtMatmulHeuristicResult_t& result,
               std::size_t workspace_bytes);

} // namespace troupe::kernels::cuda
