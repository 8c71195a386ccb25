// Checkpoints quantised by HQQ, as transformers and the hqq package save them in safetensors: `X.W_q`, the codes, with
// `X.scale`, `X.zero` and a tensor for each thing there is to say of them. Used by open_quantised. Files are untrusted.
// Format: `core/quantize.py` and `core/bitpack.py` of https://github.com/dropbox/hqq.
#pragma once

#include "runtime/checkpoint/checkpoint.hpp"

#include <memory>

namespace troupe {

/// `X.W_q` becomes `X.weight`. Groups along inputs (`axis` 1) of whole blocks of 32, with up to 4 bits, become Q4_1, or
/// Q4_0 where every zero point is 8, if f16 holds their scales exactly and their minima within 1/128 of the distance
/// between two codes; 8 bits become Q8_0 where every zero point is 128. All else is expanded to the type of the scales,
/// with the roundings of the package. Throws failure(bad_file | unsupported) that names the file and the tensor.
std::unique_ptr<const checkpoint> open_hqq(std::unique_ptr<const checkpoint> stored);

} // namespace troupe
