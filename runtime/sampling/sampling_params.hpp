// The sampling parameters of a request. Filled by the API or the command line, validated when the request is admitted,
// then shared read-only. Copies are cheap: they share the lists.
#pragma once

#include "runtime/sampling/sampling_lists.hpp"
#include "runtime/sampling/stop_strings.hpp"
#include "runtime/support/types.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe {

/// Processors apply in the order of transformers' generate: logit_bias, repetition_penalty, min_tokens,
/// presence_penalty and frequency_penalty, temperature, top_k, top_p, min_p. The initial values are the defaults of
/// every interface; names and ranges are in sampling_table.hpp.
struct sampling_params {
  float temperature = 1;        // below 1e-5: greedy, and the filters are not used
  int top_k = 0;                // 0 or -1: off
  float top_p = 1;              // 1: off
  float min_p = 0;              // 0: off
  float repetition_penalty = 1; // over prompt and generated tokens
  float presence_penalty = 0;   // over generated tokens
  float frequency_penalty = 0;  // over generated tokens
  logit_bias_map logit_bias = {};
  std::uint64_t seed = 0;
  int max_tokens = 16;
  int min_tokens = 0; // until then neither an EOS id nor a stop id can be chosen
  bool ignore_eos = false;
  stop_id_set stop_token_ids = {};
  stop_strings stop = {}; // matched on text by the request, not by the sampler
  int n = 1;
  int logprobs = -1; // -1: none; 0: the chosen token's; k: and those of the k most likely

  /// Throws failure(bad_request, sentence, field) if a field is out of range or names an id outside the vocabulary.
  /// Constant time, whatever the lists hold.
  void validate(std::size_t vocab_size) const;

  /// Whether the most likely token is taken rather than sampled.
  bool greedy() const { return temperature < 1e-5f; }
};

} // namespace troupe
