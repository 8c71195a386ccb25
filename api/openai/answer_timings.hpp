// The `timings` of an answer: llama.cpp's names, and where the time went by cause. Times are the engine's, from the
// submission to the last token. Plain data in, text out.
#pragma once

#include "runtime/engine/generation.hpp"
#include "runtime/support/json/json_object.hpp"

#include <cstdint>
#include <string>

namespace troupe {

/// {"queue": 1.5, ...}: where a request's time went, in milliseconds; parts that are 0 are left out.
std::string json_of(const wait_parts& spent);

/// The timings of a generation. Of several, the times are those of the one that ended last.
class answer_timings {
public:
  void add(const done_event& done);
  /// `said`: tokens of the answers, without what a filter withheld.
  json_object json(std::uint64_t said) const;

private:
  std::uint64_t prompt_tokens_ = 0, cached_tokens_ = 0, guesses_ = 0, accepted_ = 0;
  double queue_ms_ = 0, prefill_ms_ = 0, decode_ms_ = 0, total_ms_ = -1;
  wait_parts spent_;
};

} // namespace troupe
