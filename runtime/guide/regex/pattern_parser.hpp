// The syntax tree of a regular expression. Internal to pattern.cpp and its parser.
#pragma once

#include "runtime/guide/regex/code_points.hpp"

#include <memory>
#include <string_view>
#include <vector>

namespace troupe::guides {

struct pattern_node {
  enum class kind : std::uint8_t { sequence, choice, characters, repeat, begin, end, ahead, not_ahead };
  kind what = kind::sequence;
  std::vector<pattern_node> parts = {}; // of a sequence or choice; one of a repetition or lookahead
  code_points set = {};                 // characters
  std::uint32_t least = 0, most = 0;
  bool pure = true; // without anchors and lookaheads: what it matches does not depend on what surrounds it
};

/// What the dialects differ in.
struct pattern_dialect {
  bool ecma = true; // line terminators, white space
};

/// Throws failure(bad_request).
pattern_node parse_pattern(std::string_view pattern, const pattern_dialect& dialect);

} // namespace troupe::guides
