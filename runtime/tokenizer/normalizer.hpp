// The `normalizer` of tokenizer.json: what is done to a text before it is cut into words. Immutable, shared between
// threads.
#pragma once

#include "runtime/support/json_reader.hpp"
#include "runtime/tokenizer/pattern.hpp"

#include <functional>
#include <string>
#include <vector>

namespace troupe::tokenization {

/// A text on its way through the tokenizer.
struct section {
  std::string text;
  bool at_start = false; // is its first character the first of the whole input? (Metaspace's `first` asks)
};

using normalizer_step = std::function<void(section&, match_scratch&)>;

class normalizer {
public:
  normalizer() = default; // leaves texts as they are
  /// Throws failure naming the step that is not supported or malformed.
  explicit normalizer(const json::reader& description) { add(description); }

  void apply(section& text, match_scratch& scratch) const;

  /// A text has at most this many times as many bytes before as after; 0 where there is no such bound.
  std::size_t shrinks() const { return shrinks_; }

private:
  void add(const json::reader& description);
  std::vector<normalizer_step> steps_;
  std::size_t shrinks_ = 1;
};

} // namespace troupe::tokenization
