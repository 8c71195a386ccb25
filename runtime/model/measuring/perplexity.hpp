// Measures perplexity, how well a model predicts a text, by teacher forcing over overlapping windows. Shows the cost of
// quantisation. Used on the backend's thread.
#pragma once

#include "runtime/model/decoder/decoder.hpp"

#include <functional>
#include <span>

namespace troupe {

struct perplexity_result {
  std::size_t tokens = 0;    // predicted
  double loss = 0;           // mean of -ln p, in nats per token
  double deviation = 0;      // standard error of that mean
  double perplexity() const; // e^loss
};

/// Rows per step of `measure_perplexity`: at most `max_rows`, and as many as have their logits in 64 MiB.
std::size_t perplexity_logit_rows(int vocab, int max_rows);

/// Windows have `context` tokens (at least 2) and start `stride` (1 to context - 1) tokens apart. A token counts in the
/// first window that holds it, so it is predicted from at least context - stride tokens, and every token but the text's
/// first counts once. `graph` must allow `context` positions. `progress` receives tokens done and in all.
/// Throws failure(bad_request) for a text of fewer than 2 tokens.
perplexity_result measure_perplexity(decoder& graph, kernels::backend& backend, kernels::kv_cache& cache,
                                     std::span<const token_id> tokens, int context, int stride,
                                     const progress_fn& progress = {});

} // namespace troupe
