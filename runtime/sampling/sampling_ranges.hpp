// Limits that the table of sampling parameters, the lists beside it and the readers of requests share.
#pragma once

#include <cstddef>
#include <limits>

namespace troupe {

struct number_range {
  double least = 0;
  double most = 0;
  bool above_least = false; // `least` itself is excluded
};

namespace sampling_fields {

inline constexpr int most_int = std::numeric_limits<int>::max();
inline constexpr int most_sequences = 128; // of one prompt
inline constexpr int most_logprobs = 20;   // alternatives beside the chosen token

inline constexpr number_range bias{-100, 100};       // of one entry of `logit_bias`
inline constexpr std::size_t most_biases = 1024;     // entries of `logit_bias`
inline constexpr std::size_t most_stop_ids = 1024;   // entries of `stop_token_ids`
inline constexpr std::size_t most_stops = 64;        // entries of `stop`
inline constexpr std::size_t most_stop_bytes = 4096; // of all entries of `stop` together

} // namespace sampling_fields

} // namespace troupe
