// The `pre_tokenizer` of tokenizer.json: cuts a normalised text into the words within which tokens are looked for.
// Immutable, shared between threads.
#pragma once

#include "runtime/support/json_reader.hpp"
#include "runtime/tokenizer/normalizer.hpp"
#include "runtime/tokenizer/pattern.hpp"

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::tokenization {

/// A text and the words that it has been cut into so far; what lies in no word is dropped.
struct word_list {
  struct word {
    std::size_t begin = 0;
    std::size_t end = 0;
    bool at_start = false; // see section::at_start
  };
  std::string text;
  std::vector<word> words;

  std::string_view view(const word& w) const { return std::string_view(text).substr(w.begin, w.end - w.begin); }
};

using pre_tokenizer_step = std::function<void(word_list&, match_scratch&)>;

class pre_tokenizer {
public:
  pre_tokenizer() = default; // the whole text is one word
  /// Throws failure naming the step that is not supported or malformed.
  explicit pre_tokenizer(const json::reader& description) { add(description); }

  /// Cuts `text` (not empty) into `words`, whose memory is reused.
  void apply(const section& text, word_list& words, match_scratch& scratch) const;

  /// May some of a text end up in no word?
  bool drops() const { return drops_; }
  /// Are words spelled with byte_level_alphabet()?
  bool byte_level() const { return byte_level_; }

private:
  void add(const json::reader& description);
  std::vector<pre_tokenizer_step> steps_;
  bool drops_ = false, byte_level_ = false;
};

/// The character that stands for each byte in byte-level vocabularies, as UTF-8 (GPT-2's encoder.py: bytes that print
/// stand for themselves, the others for U+0100 upwards).
const std::array<std::string, 256>& byte_level_alphabet();
/// The byte that a character stands for, or -1.
int byte_of(char32_t c);

} // namespace troupe::tokenization
