// What each number that says how to sample may be, and what it is where nobody says anything: the one table that
// requests, the command line, generation_config.json and sampling_params itself go by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

namespace troupe {

struct number_range {
  double least = 0;
  double most = 0;
  bool above_least = false; // `least` itself is excluded
};

struct sampling_number {
  std::string_view name; // of the field
  number_range range;
  float initial = 0;
};

struct sampling_integer {
  std::string_view name;
  std::int64_t least = 0, most = 0;
  int initial = 0;
};

namespace sampling_fields {

inline constexpr int most_int = std::numeric_limits<std::int32_t>::max();

inline constexpr sampling_number temperature{"temperature", {0, 2}, 1};
inline constexpr sampling_number top_p{"top_p", {0, 1}, 1};
inline constexpr sampling_number min_p{"min_p", {0, 1}, 0};
inline constexpr sampling_number repetition_penalty{"repetition_penalty", {0.01, 100}, 1};
inline constexpr sampling_number presence_penalty{"presence_penalty", {-2, 2}, 0};
inline constexpr sampling_number frequency_penalty{"frequency_penalty", {-2, 2}, 0};
inline constexpr sampling_integer top_k{"top_k", -1, most_int, 0};
inline constexpr sampling_integer max_tokens{"max_tokens", 1, most_int, 16};
inline constexpr sampling_integer min_tokens{"min_tokens", 0, most_int, 0};
inline constexpr sampling_integer n{"n", 1, 128, 1};
inline constexpr sampling_integer logprobs{"logprobs", -1, 20, -1};

inline constexpr number_range bias{-100, 100};       // of one entry of `logit_bias`
inline constexpr std::size_t most_biases = 1024;     // entries of `logit_bias`
inline constexpr std::size_t most_stop_ids = 1024;   // entries of `stop_token_ids`
inline constexpr std::size_t most_stops = 64;        // entries of `stop`
inline constexpr std::size_t most_stop_bytes = 4096; // of all of them together

} // namespace sampling_fields

} // namespace troupe
