#include "kernels/cuda/gemm_library.hpp"

#include "kernels/cuda/library_places.hpp"
#include "kernels/cuda/native/cublas_lt.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace troupe::kernels::cuda {

namespace {

constexpr std::size_t workspace_bytes = std::size_t(64) << 20;
constexpr std::size_t plan_alignment = 16; // bytes; plans distinguish alignments of activations up to this

class cublas_lt : public gemm_library {
public:
  explicit cublas_lt(const cublas_lt_functions& lt) : lt_(lt), workspace_(allocate(workspace_bytes)) {
    lt_.check(lt_.create(&handle_), "cublasLtCreate");
  }
  ~cublas_lt() override {
    for (auto& [shape, made] : plans_)
      release(made);
    lt_.destroy(handle_);
  }
  cublas_lt(const cublas_lt&) = delete;
  cublas_lt& operator=(const cublas_lt&) = delete;

  bool multiply(const stream& on, const product& p) override {
    plan& use = plan_of(p);
    if (!use.usable)
      return false;
    if (p.row_scales != nullptr)
      set_scales(use, p);
    const float one = 1, beta = p.add ? 1.0f : 0.0f;
    lt_.check(lt_.matmul(handle_, use.operation, &one, p.weights, use.weights, p.in, use.in, &beta, p.out, use.out,
                         p.out, use.out, &use.algorithm, workspace_.get(), workspace_bytes,
                         static_cast<cudaStream_t>(on.native())),
              "cublasLtMatmul");
    return true;
  }

  std::string description() const override {
    const auto v = lt_.version(); // 10000 * major + 100 * minor + patch
    return "cuBLASLt " + std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." +
      std::to_string(v % 100) + " (" + lt_.where + ")";
  }

private:
  /// In the library's column-major view: out [outputs, rows] = weights [inputs, outputs]ᵀ · in [inputs, rows].
  struct plan {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t weights = nullptr, in = nullptr, out = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
    bool usable = false;
  };

  plan& plan_of(const product& p) {
    const auto alignment = [](const void* at) {
      return static_cast<int>(reinterpret_cast<std::uintptr_t>(at) % plan_alignment);
    };
    const key shape{p.rows,
                    p.outputs,
                    p.inputs,
                    p.out_stride,
                    p.in_stride,
                    p.weight_stride,
                    p.add,
                    p.fp8,
                    p.row_scales != nullptr,
                    alignment(p.out),
                    alignment(p.in)};
    const auto [found, added] = plans_.try_emplace(shape);
    if (added)
      make(found->second, p);
    return found->second;
  }

  void make(plan& to, const product& p) {
    lt_.check(lt_.desc_create(&to.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    lt_.check(lt_.desc_set(to.operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
              "cublasLtMatmulDescSetAttribute");
    const auto layout = [&](cublasLtMatrixLayout_t& made, cudaDataType type, std::size_t rows, std::size_t cols,
                            std::size_t stride) {
      lt_.check(lt_.layout_create(&made, type, rows, cols, static_cast<std::int64_t>(stride)),
                "cublasLtMatrixLayoutCreate");
    };
    if (p.row_scales != nullptr && !set_scale_modes(to))
      return;
    const auto type = p.fp8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
    layout(to.weights, type, p.inputs, p.outputs, p.weight_stride);
    layout(to.in, type, p.inputs, p.rows, p.in_stride);
    layout(to.out, CUDA_R_32F, p.outputs, p.rows, p.out_stride);
    cublasLtMatmulPreference_t preference = nullptr;
    lt_.check(lt_.preference_create(&preference), "cublasLtMatmulPreferenceCreate");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      lt_.check(lt_.preference_set(preference, attribute, &value, sizeof value),
                "cublasLtMatmulPreferenceSetAttribute");
    };
    const auto aligned = [](const void* at) { // at most what the plan's key distinguishes
      const auto address = reinterpret_cast<std::uintptr_t>(at);
      return static_cast<std::uint32_t>(std::min<std::uintptr_t>(plan_alignment, address & (~address + 1)));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, aligned(p.in));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, aligned(p.out));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, aligned(p.out));
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const auto status = lt_.heuristic(handle_, to.operation, to.weights, to.in, to.out, to.out, preference, 1, &result,
                                      &found);
    lt_.preference_destroy(preference);
    // Only the library knows which devices multiply fp8 with which scales, and it refuses with various status codes.
    if (status != CUBLAS_STATUS_NOT_SUPPORTED && !p.fp8)
      lt_.check(status, "cublasLtMatmulAlgoGetHeuristic");
    to.usable = is_usable(status, found, result, workspace_bytes);
    to.algorithm = result.algo;
  }

  /// Asks for a scale per row of both operands; false if the library has none (Hopper with CUDA 12.9 does).
  bool set_scale_modes(plan& to) {
#if CUBLAS_VERSION >= 120900
    const std::int32_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    // Heuristics want a pointer to scales; the real one follows with each product.
    const float* later = static_cast<const float*>(workspace_.get());
    for (const auto which : {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_DESC_B_SCALE_MODE})
      if (lt_.desc_set(to.operation, which, &mode, sizeof mode) != CUBLAS_STATUS_SUCCESS)
        return false;
    for (const auto which : {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER})
      if (lt_.desc_set(to.operation, which, &later, sizeof later) != CUBLAS_STATUS_SUCCESS)
        return false;
    return true;
#else
    return false;
#endif
  }

  void set_scales(plan& to, const product& p) {
    lt_.check(lt_.desc_set(to.operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &p.output_scales, sizeof(float*)),
              "cublasLtMatmulDescSetAttribute");
    lt_.check(lt_.desc_set(to.operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &p.row_scales, sizeof(float*)),
              "cublasLtMatmulDescSetAttribute");
  }

  void release(plan& made) {
    for (auto layout : {made.weights, made.in, made.out})
      if (layout)
        lt_.layout_destroy(layout);
    if (made.operation)
      lt_.desc_destroy(made.operation);
  }

  using key = std::tuple<std::size_t, std::size_t, std::size_t, std::size_t, std::size_t, std::size_t, bool, bool, bool,
                         int, int>;
  cublas_lt_functions lt_;
  buffer workspace_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<key, plan> plans_;
};

} // namespace

std::unique_ptr<gemm_library> open_gemm_library(std::string* why_none) {
  cublas_lt_functions lt;
  std::string why;
  const auto name = cublas_lt_name();
  if (lt.load(library_places(name, CUBLAS_VER_MAJOR, library_surroundings::of_process()), why))
    return std::make_unique<cublas_lt>(lt);
  if (why_none != nullptr)
    *why_none = "no " + name + " was found; TROUPE_CUBLASLT may name the file (" + why + ")";
  return nullptr;
}

} // namespace troupe::kernels::cuda
