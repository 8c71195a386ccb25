// Finds stop strings in text that arrives piece by piece. One per sequence, owned by the request and fed by its
// incremental detokeniser; single-threaded. The automaton is shared (stop_strings.hpp).
#pragma once

#include "runtime/sampling/stop_strings.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe {

/// The text ends before the match that completes first; of several that complete with the same byte, before the one
/// that starts earliest (the longest). So "aaab" pushed against {"aab", "b"} emits "a". Until a match, exactly the
/// longest suffix that is a proper prefix of a stop string is held back. If pieces and stop strings are whole UTF-8
/// characters, so is the output. A match may begin, but not be completed, in text that is pushed without `stopping`.
class stop_matcher {
public:
  explicit stop_matcher(stop_strings stops) : stops_(std::move(stops)) {}

  struct result {
    std::string text = {}; // safe to emit now
    bool stopped = false;  // a stop string is complete; all later text is dropped
    std::size_t which = 0; // index of that stop string (the first of equal ones)
  };

  result push(std::string_view piece, bool stopping = true);

  /// The text held back, for a generation that ends without a match; empty after one.
  std::string finish();

private:
  stop_strings stops_;
  stop_strings::state state_ = 0;
  std::string held_; // the prefix of state_
  result last_;      // of the push that matched, without its text
};

} // namespace troupe
