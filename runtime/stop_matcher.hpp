// Finds stop strings in text that arrives piece by piece. Owned by the request, one per sequence, fed by its
// incremental detokeniser; single-threaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace troupe {

/// The text ends before the match that completes first; of several that complete with the same byte, the one that
/// starts earliest (the longest) counts. So "aaab" pushed against {"aab", "b"} emits "a". Until something matches,
/// exactly the longest suffix that is a proper prefix of a stop string is held back. Where pieces and stop strings are
/// whole UTF-8 characters, so is all that comes out.
///
/// Aho & Corasick, "Efficient string matching" (CACM 1975): linear in the length of the text, whatever the stops.
class stop_matcher {
public:
  /// Empty strings among `stops` never match.
  explicit stop_matcher(std::vector<std::string> stops);

  struct result {
    std::string text = {}; // safe to emit now
    bool stopped = false;  // a stop string has been completed; all later text is swallowed
    std::size_t which = 0; // index of that stop string (of equal ones the first)
  };

  result push(std::string_view piece);

  /// The rest that was held back, for when generation ends without a match; empty after one.
  std::string finish();

private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  // A prefix of one or more stop strings. Node 0 is the empty prefix.
  struct node {
    std::uint32_t depth = 0;   // bytes of the prefix
    std::uint32_t suffix = 0;  // the longest proper suffix that is a prefix of a stop, too
    std::uint32_t match = none; // the longest stop string that the prefix ends with
  };

  std::uint32_t child(std::uint32_t from, unsigned char byte) const;
  std::uint32_t advance(std::uint32_t from, unsigned char byte) const;

  std::vector<node> nodes_;
  std::unordered_map<std::uint64_t, std::uint32_t> edges_; // (node, byte) -> node
  std::vector<std::size_t> lengths_;                       // bytes of each stop
  std::uint32_t state_ = 0;
  std::string held_; // the prefix of state_
  result last_;      // of the push that matched, its text cleared
};

} // namespace troupe
