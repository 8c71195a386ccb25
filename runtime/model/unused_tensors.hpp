// What becomes of a checkpoint's tensors that a model does not use. Used by check_tensors.
#pragma once

#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/model/model_config.hpp"

#include <set>
#include <string>
#include <vector>

namespace troupe {

/// Looks at the tensors that are not in `used`. Those without an effect are passed over: a tied head stored twice, the
/// rotation's frequencies, masks, scales of an int8 or fp8 that is not used, biases of zeros (which some GPTQ tools
/// write). A tensor of one of the model's layers, or of what is around them, would change the results: throws
/// failure(unsupported) naming the first. Layers beyond the configuration's (heads that predict further tokens) and all
/// else (a part for images) do not touch what text is computed from: returns a sentence for each of these two kinds.
std::vector<std::string> check_unused_tensors(const checkpoint& tensors, const model_config& config,
                                              const std::set<std::string>& used);

} // namespace troupe
