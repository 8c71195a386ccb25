// Finds stop strings in text that arrives piece by piece. Owned by the request, one per sequence, fed by its
// incremental detokeniser; single-threaded. Small: the automaton is the request's.
#pragma once

#include "runtime/sampling/stop_strings.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe {

/// The text ends before the match that completes first; of several that complete with the same byte, the one that
/// starts earliest (the longest) counts. So "aaab" pushed against {"aab", "b"} emits "a". Until something matches,
/// exactly the longest suffix that is a proper prefix of a stop string is held back. Where pieces and stop strings are
/// whole UTF-8 characters, so is all that comes out.
class stop_matcher {
public:
  explicit stop_matcher(stop_strings stops) : stops_(std::move(stops)) {}

  struct result {
    std::string text = {}; // safe to emit now
    bool stopped = false;  // a stop string has been completed; all later text is swallowed
    std::size_t which = 0; // index of that stop string (of equal ones the first)
  };

  result push(std::string_view piece);

  /// The rest that was held back, for when generation ends without a match; empty after one.
  std::string finish();

private:
  stop_strings stops_;
  stop_strings::state state_ = 0;
  std::string held_; // the prefix of state_
  result last_;      // of the push that matched, its text cleared
};

} // namespace troupe
