// Whether a model would load, and what memory it would take: everything that loading checks, without reading weights.
#pragma once

#include "runtime/engine/engine_options.hpp"

#include <cstddef>
#include <string>

namespace troupe {

struct model_check {
  // What is known of the model; empty or 0 if not even that can be read.
  std::string family, weights; // "llama"; the type of most weights once loaded
  std::size_t parameters = 0;
  int context = 0; // tokens of a sequence, as asked for or the model's

  std::string why_not; // a sentence; empty: it loads, memory aside

  // Bytes of memory of a model that loads:
  std::size_t weight_bytes = 0, step_bytes = 0;
  std::size_t kv_token_bytes = 0; // of each token of a sequence
  std::size_t sequence_bytes = 0; // KV cache of one sequence of `context` tokens
  std::size_t available = 0;      // now
  int fitting_context = 0;        // tokens of a sequence that this leaves room for
  std::string no_room;            // a sentence; empty: some context fits

  std::size_t needed() const { return weight_bytes + step_bytes + sequence_bytes; }
};

/// Opens what `options` name as load_model does. Failures are part of the result.
model_check check_model(const engine_options& options);

} // namespace troupe
