// Matrices of E2M1 codes in bytes, the first of two in the low half: groups of 16 with scales in E4M3 and one for the
// matrix (NVFP4), or groups of 32 with powers of two (MXFP4). Used by the readers of compressed-tensors, ModelOpt and FP8.
#pragma once

#include "runtime/checkpoint/quantised/made_checkpoint.hpp"

#include <memory>
#include <string>

namespace troupe {

/// Names of what an NVFP4 matrix is stored in. The matrix's scale divides, or multiplies.
struct nvfp4_parts {
  std::string codes, scales, whole;
  bool divides = false;
};

/// Presents the matrix `weight` in f16. Throws failure(bad_file) naming the file and the tensor.
void add_nvfp4(made_checkpoint& to, const std::string& weight, const nvfp4_parts& parts);

/// Presents the matrix `weight` in MXFP4. Throws as above.
void add_mxfp4(made_checkpoint& to, const std::string& weight, const std::string& codes, const std::string& scales);

/// Presents each `X.weight` in I8 in MXFP4, as the experts of DeepSeek V4 are stored beside matrices in FP8. Throws as
/// above.
std::unique_ptr<const checkpoint> open_fp4_experts(std::unique_ptr<const checkpoint> stored);

} // namespace troupe
