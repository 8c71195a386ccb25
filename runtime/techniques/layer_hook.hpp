// What looks at or changes the residual stream between the layers of a forward pass.
#pragma once

#include <functional>

namespace troupe {

namespace kernels {
struct tensor;
}

/// Called with the residual stream, f32 [rows, hidden], which it may change: ahead of the first layer, when it has
/// `passed` none, and behind each.
using layer_hook = std::function<void(int passed, const kernels::tensor& residual)>;

} // namespace troupe
