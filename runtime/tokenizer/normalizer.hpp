// The `normalizer` of tokenizer.json: rewrites a text before it is split into words. Immutable, shared between threads.
#pragma once

#include "runtime/support/json/json_reader.hpp"
#include "runtime/tokenizer/pattern.hpp"

#include <functional>
#include <string>
#include <vector>

namespace troupe::tokenization {

/// A text on its way through the tokenizer.
struct section {
  std::string text;
  /// A word that begins at this byte or before it begins the whole input, for Metaspace's `first`; -1: none does. More
  /// than 0 behind what was put before the input.
  std::ptrdiff_t start_until = -1;
  bool is_token = false; // the content of an added token: SentencePiece puts nothing around it
};

/// `start_until` of the rest behind `begin`.
inline std::ptrdiff_t start_behind(std::ptrdiff_t start_until, std::size_t begin) {
  return std::max<std::ptrdiff_t>(start_until - static_cast<std::ptrdiff_t>(begin), -1);
}

using normalizer_step = std::function<void(section&, match_scratch&)>;

class normalizer {
public:
  normalizer() = default; // changes nothing
  /// Throws failure naming the unsupported or malformed step.
  explicit normalizer(const json::reader& description) { add(description); }

  void apply(section& text, match_scratch& scratch) const;

  /// The largest ratio of bytes before to bytes after; 0 if unbounded.
  std::size_t shrinks() const { return shrinks_; }

private:
  void add(const json::reader& description);
  bool add_of_sentencepiece(std::string_view type, const json::reader& description);
  bool add_of_bert(std::string_view type, const json::reader& description);
  std::vector<normalizer_step> steps_;
  std::size_t shrinks_ = 1;
};

} // namespace troupe::tokenization
