// Checkpoints that GPTQ or AWQ quantised, 4 bits per weight: seen as if their matrices were stored in GGUF's blocks. Those
// in FP8 are left to fp8_checkpoint.hpp.
// Used by open_model.
// Formats: `qlinear` of AutoGPTQ (https://github.com/AutoGPTQ/AutoGPTQ), `WQLinear_GEMM` of AutoAWQ
// (https://github.com/casper-hansen/AutoAWQ).
#pragma once

#include "runtime/checkpoint/checkpoint.hpp"

#include <memory>
#include <optional>

namespace troupe {

namespace json {
class document;
}

/// What `quantization_config` of a config.json says.
struct quantised_storage {
  enum class method_name : std::uint8_t { gptq, awq, fp8 } method = method_name::gptq;
  std::size_t group = 0;       // inputs that share a scale; 0: all
  bool symmetric = false;      // all zeros are 8
  bool zeros_less_one = false; // as GPTQ's first format stores them
};

/// Nothing where the configuration has none. Throws failure(bad_file | unsupported) naming the file and the key.
std::optional<quantised_storage> parse_quantised_storage(const json::document& config);

/// Each `X.qweight`, with its `X.qzeros`, `X.scales` and perhaps `X.g_idx`, becomes `X.weight`: in blocks of Q4_0 where
/// every zero is 8, which is exact; else of Q4_1, whose minimum is scale * zero rounded to f16 (off by at most 1/250 of
/// the distance between two codes). Where inputs are not in the order of their groups (`desc_act`), or groups not made
/// of whole blocks, the values are written out in f16. Other tensors are as they were.
/// Throws failure(bad_file | unsupported) naming the file and the tensor.
std::unique_ptr<const checkpoint> open_quantised(std::unique_ptr<const checkpoint> stored,
                                                 const quantised_storage& how);

} // namespace troupe
