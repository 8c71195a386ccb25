// Bounds how much a text grows in a tokenizer, because a tokenizer.json may replace a letter by a book. The state of
// one call.
#pragma once

#include "runtime/support/error.hpp"

#include <algorithm>
#include <cstddef>
#include <string>

namespace troupe::tokenization {

/// NFKC turns one byte into 11 at most, and the byte-level alphabet doubles them.
class growth_budget {
public:
  growth_budget() = default;
  /// Bounds the growth of a text of `bytes` bytes.
  explicit growth_budget(std::size_t bytes) : left_(std::min(spare + bytes * most_times, most)), bytes_(bytes) {}

  /// Call before allocating more than a few times the present size. Throws failure(bad_request).
  void charge(std::size_t before, std::size_t after) {
    const auto more = after - std::min(before, after);
    if (more > left_)
      throw failure(errc::bad_request,
                    "the model's tokenizer makes too much of this text: it grows from " + std::to_string(bytes_) +
                      " bytes by more than " + std::to_string(std::min(spare + bytes_ * most_times, most)));
    left_ -= more;
  }

private:
  static constexpr std::size_t spare = std::size_t(64) << 10, most_times = 32, most = std::size_t(256) << 20;

  std::size_t left_ = spare, bytes_ = 0;
};

/// Steps of a normalizer, pre-tokenizer or decoder: each passes over the whole text.
inline constexpr std::size_t most_steps_of_a_tokenizer = 128;

/// Bytes of a pattern to search for, and of the text of one token.
inline constexpr std::size_t longest_added_token = 1024, longest_literal = 1024, longest_regex = std::size_t(64) << 10,
                             longest_decoded_token = std::size_t(64) << 10;

} // namespace troupe::tokenization
