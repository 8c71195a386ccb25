// What a request asks of the sampler. Filled by the API and the command line, validated there once, then shared
// read-only by everyone who handles the request. A copy costs little, whatever the lists hold: copies share them.
#pragma once

#include "runtime/sampling/sampling_lists.hpp"
#include "runtime/sampling/sampling_ranges.hpp"
#include "runtime/sampling/stop_strings.hpp"
#include "runtime/support/types.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe {

/// Processors apply in the order of transformers' generate: logit_bias, repetition_penalty, min_tokens,
/// presence_penalty and frequency_penalty, temperature, top_k, top_p, min_p. Ranges: sampling_ranges.hpp.
struct sampling_params {
  float temperature = sampling_fields::temperature.initial; // below 1e-5: greedy, and the filters are not used
  int top_k = sampling_fields::top_k.initial;               // 0 or -1: off
  float top_p = sampling_fields::top_p.initial;             // 1: off
  float min_p = sampling_fields::min_p.initial;             // 0: off
  float repetition_penalty = sampling_fields::repetition_penalty.initial; // over prompt and generated tokens
  float presence_penalty = sampling_fields::presence_penalty.initial;     // over generated tokens
  float frequency_penalty = sampling_fields::frequency_penalty.initial;   // over generated tokens
  logit_bias_map logit_bias = {};
  std::uint64_t seed = 0;
  int max_tokens = sampling_fields::max_tokens.initial;
  int min_tokens = sampling_fields::min_tokens.initial; // until then neither an EOS id nor a stop id can be chosen
  bool ignore_eos = false;
  stop_id_set stop_token_ids = {};
  stop_strings stop = {}; // matched on text by the request, not by the sampler
  int n = sampling_fields::n.initial;
  int logprobs = sampling_fields::logprobs.initial; // -1: none; 0: the chosen token's; k: and the k likeliest's

  /// Throws failure(bad_request, sentence, field) where a field is out of range or names an id outside the vocabulary.
  /// Takes the same time whatever the lists hold.
  void validate(std::size_t vocab_size) const;

  /// Whether the likeliest token is taken rather than sampled.
  bool greedy() const { return temperature < 1e-5f; }
};

} // namespace troupe
