// How well a model predicts a text: teacher forcing over windows that overlap. For measuring what quantisation costs.
// Used by one thread, the one that uses the backend.
#pragma once

#include "runtime/model/decoder.hpp"

#include <functional>
#include <span>

namespace troupe {

struct perplexity_result {
  std::size_t tokens = 0;    // predicted
  double loss = 0;           // mean of -ln p, in nats per token
  double deviation = 0;      // standard error of that mean
  double perplexity() const; // e^loss
};

/// Rows of a step of `measure_perplexity`, whose logits it keeps: of `max_rows`, as many as 64 MiB hold.
std::size_t perplexity_logit_rows(int vocab, int max_rows);

/// Windows of `context` tokens (at least 2), each `stride` (1 to context - 1) further on. A token counts in the first
/// window that holds it, so that it is predicted from context - stride tokens at least, and every token but the first
/// of the text counts once. `graph` must allow `context` positions. `progress` hears of tokens done, of all.
/// Throws failure(bad_request) for a text of fewer than 2 tokens.
perplexity_result measure_perplexity(decoder& graph, kernels::backend& backend, kernels::kv_cache& cache,
                                     std::span<const token_id> tokens, int context, int stride,
                                     const progress_fn& progress = {});

} // namespace troupe
