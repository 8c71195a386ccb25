// Folders of NVIDIA's ModelOpt: `X.weight` of codes, with `X.weight_scale` and perhaps `X.weight_scale_2`. Used by
// open_quantised.
#pragma once

#include "runtime/checkpoint/checkpoint.hpp"

#include <memory>

namespace troupe {

/// Presents matrices in NVFP4 in f16. Those in fp8, with one scale, one for each output, for each block, or for each 32
/// inputs (MXFP8), stay as open_fp8 reads them. Scales of activations are left out. Throws failure(bad_file |
/// unsupported) naming the file and the tensor.
std::unique_ptr<const checkpoint> open_modelopt(std::unique_ptr<const checkpoint> stored);

} // namespace troupe
