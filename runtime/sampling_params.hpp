// What a request asks of the sampler. Filled by the API and the command line, validated there once, then shared
// read-only by everyone who handles the request.
#pragma once

#include "runtime/types.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// Processors apply in the order of transformers' generate: logit_bias, repetition_penalty, min_tokens,
/// presence_penalty and frequency_penalty, temperature, top_k, top_p, min_p.
struct sampling_params {
  float temperature = 1;         // 0 to 2; below 1e-5: greedy, and the filters are not used
  int top_k = 0;                 // 0 or -1: off
  float top_p = 1;               // 0 to 1; 1: off
  float min_p = 0;               // 0 to 1; 0: off
  float repetition_penalty = 1;  // above 0; over prompt and generated tokens
  float presence_penalty = 0;    // -2 to 2; over generated tokens
  float frequency_penalty = 0;   // -2 to 2; over generated tokens
  std::vector<std::pair<token_id, float>> logit_bias = {}; // -100 to 100 each
  std::uint64_t seed = 0;
  int max_tokens = 16;
  int min_tokens = 0;            // until then neither an EOS id nor a stop id can be chosen
  bool ignore_eos = false;
  std::vector<token_id> stop_token_ids = {};
  std::vector<std::string> stop = {}; // matched on text by the request, not by the sampler
  int n = 1;                     // 1 to 128
  int logprobs = -1;             // -1: none; 0: the chosen token's; k: and the k likeliest's, up to 20

  /// Throws failure(bad_request, sentence, field) where a field is out of range or names an id outside the vocabulary.
  void validate(std::size_t vocab_size) const;

  /// Whether the likeliest token is taken rather than drawn.
  bool greedy() const { return temperature < 1e-5f; }
};

} // namespace troupe
