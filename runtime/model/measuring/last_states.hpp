// Reads the hidden states of a prompt's last token behind every layer, as they are in the residual stream. Used by the
// thread of the decoder.
#pragma once

#include "runtime/model/decoder/decoder.hpp"

#include <span>
#include <vector>

namespace troupe {

/// [layers][hidden]. `backend` is the decoder's and has family ops; the cache must have blocks for the whole prompt and
/// holds nothing else. Throws failure(bad_request) if the prompt is empty or longer than the decoder's context.
std::vector<std::vector<float>> last_states(decoder& graph, kernels::backend& backend, kernels::kv_cache& cache,
                                            std::span<const token_id> prompt);

} // namespace troupe
