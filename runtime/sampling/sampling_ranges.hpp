// Limits that the table of sampling parameters, the lists beside it and the readers of requests share.
#pragma once

#include "runtime/support/json/number_range.hpp"

#include <cstddef>
#include <limits>

namespace troupe {

namespace sampling_fields {

inline constexpr int most_int = std::numeric_limits<int>::max();
inline constexpr int most_sequences = 128; // of one prompt
inline constexpr int most_logprobs = 20;   // alternatives beside the chosen token

inline constexpr number_range bias{-100, 100};       // of one entry of `logit_bias`
inline constexpr std::size_t most_biases = 1024;     // entries of `logit_bias`
inline constexpr std::size_t most_stop_ids = 1024;   // entries of `stop_token_ids`
inline constexpr std::size_t most_stops = 64;        // entries of `stop`
inline constexpr std::size_t most_stop_bytes = 4096; // of all entries of `stop` together

inline constexpr int most_dry_range = 16384;              // tokens that one choice looks back at
inline constexpr int most_ngram = 256;                    // `no_repeat_ngram_size`
inline constexpr std::size_t most_allowed_ids = 1 << 20;  // entries of `allowed_token_ids`
inline constexpr std::size_t most_sequence_biases = 1024; // words forbidden, and biases of texts, each
inline constexpr std::size_t most_sequence_tokens = 64;   // of one of them
inline constexpr std::size_t most_breakers = 256;         // entries of `dry_sequence_breakers`
inline constexpr std::size_t most_text_bytes = 1024;      // of one text that is turned into tokens

} // namespace sampling_fields

} // namespace troupe
