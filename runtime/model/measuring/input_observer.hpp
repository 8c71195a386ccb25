// Shows what a model's matrices are multiplied with while it reads a text, for quantisation by calibration
// (importances, Hessians). Used on the backend's thread. Only for backends whose memory is the host's, such as CPUs.
#pragma once

#include "runtime/model/decoder/decoder.hpp"

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// Inputs of matrices, row-major f32 [rows, inputs]; `matrices` names those that read them, as a checkpoint does
/// ("model.layers.0.self_attn.q_proj.weight" and its like). Valid during the call.
struct seen_inputs {
  const std::vector<std::string>& matrices;
  std::span<const float> values;
  std::size_t rows = 0;
  std::size_t inputs = 0;
};
using input_fn = std::function<void(const seen_inputs&)>;

/// Reads `tokens` in windows of `context` that do not overlap; a rest shorter than half a window is left out, unless it
/// is all there is. Each window's first token is replaced by `first`, unless that is negative. `seen` is called for the
/// matrices of layers: attention's, the MLPs' and the experts', whose rows are those that chose them. `progress`
/// receives tokens done and in all. `rows`: of a step. Throws failure(bad_request) for an empty text.
void observe_inputs(const std::shared_ptr<const model_weights>& weights, kernels::backend& backend,
                    std::span<const token_id> tokens, int context, int rows, token_id first, const input_fn& seen,
                    const progress_fn& progress = {});

/// How many of a text's tokens `observe_inputs` reads.
std::size_t observed_tokens(std::size_t tokens, int context);

} // namespace troupe
