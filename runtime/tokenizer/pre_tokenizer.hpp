// The `pre_tokenizer` of tokenizer.json: splits a normalised text into words, which the model encodes one by one.
// Immutable, shared between threads.
#pragma once

#include "runtime/support/json/json_reader.hpp"
#include "runtime/tokenizer/normalizer.hpp"
#include "runtime/tokenizer/pattern.hpp"

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::tokenization {

/// A text and its words so far. Text outside of words is dropped.
struct word_list {
  struct word {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::ptrdiff_t start_until = -1; // section::start_until, from `begin`
  };
  std::string text;
  std::vector<word> words;

  std::string_view view(const word& w) const { return std::string_view(text).substr(w.begin, w.end - w.begin); }
};

using pre_tokenizer_step = std::function<void(word_list&, match_scratch&)>;

class pre_tokenizer {
public:
  pre_tokenizer() = default; // the whole text is one word
  /// Throws failure naming the unsupported or malformed step.
  explicit pre_tokenizer(const json::reader& description) { add(description); }

  /// Splits `text` (not empty) into `words`, whose memory is reused.
  void apply(const section& text, word_list& words, match_scratch& scratch) const;

  /// Whether text may be dropped.
  bool drops() const { return drops_; }
  /// Whether words are spelled with byte_level_alphabet().
  bool byte_level() const { return byte_level_; }

private:
  void add(const json::reader& description);
  std::vector<pre_tokenizer_step> steps_;
  bool drops_ = false, byte_level_ = false;
};

/// The character of each byte in byte-level vocabularies, as UTF-8 (GPT-2's encoder.py: printable bytes represent
/// themselves, the others map to U+0100 upwards).
const std::array<std::string, 256>& byte_level_alphabet();
/// The byte of a character in that alphabet, or -1.
int byte_of(char32_t c);

} // namespace troupe::tokenization
