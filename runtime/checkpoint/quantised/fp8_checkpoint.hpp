// Checkpoints with matrices in FP8, as compressed-tensors, fbgemm, AutoFP8, AutoRound and DeepSeek write them: `X.weight`
// in F8_E4M3 or F8_E5M2, and `X.weight_scale` or `X.weight_scale_inv`, which has one number, one per output, or one per
// block of outputs and inputs. Used by open_quantised.
#pragma once

#include "runtime/checkpoint/checkpoint.hpp"

#include <array>
#include <cstddef>
#include <memory>
#include <string>

namespace troupe {

/// The name of what the codes of `weight` are multiplied with: `X.weight_scale`, or another of them that is stored.
std::string scale_of_codes(const checkpoint& stored, const std::string& weight);

/// Presents rows in the kernels' fp8 formats, with unchanged codes and scales; E5M2, and blocks of other than a multiple
/// of 32 inputs, in bf16. `block`: outputs and inputs that share a scale; if {0, 0}, scales may be of equal parts of rows.
/// Scales of activations (`X.input_scale`) are ignored: each row of activations gets its own scale, or none. Other tensors
/// are unchanged. Throws failure(bad_file | unsupported) naming the file and the tensor.
std::unique_ptr<const checkpoint> open_fp8(std::unique_ptr<const checkpoint> stored,
                                           std::array<std::size_t, 2> block = {});

} // namespace troupe
