// SentencePiece's map of characters, the `precompiled_charsmap` of its models and of tokenizer.json: texts that are
// replaced by others, found in a double array (darts-clone). Immutable, shared between threads. Files are untrusted: a
// rule that leads out of the map counts as none.
#pragma once

#include "runtime/tokenizer/growth.hpp"
#include "runtime/tokenizer/models/trie.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::tokenization {

class charsmap {
public:
  charsmap() = default; // no rules
  /// `bytes`: the size of the array (u32), the array (u32 each), the replacements, each with a zero byte behind it.
  /// Throws std::invalid_argument with what is wrong.
  explicit charsmap(std::string_view bytes);

  bool empty() const { return array_.empty(); }

  struct rule {
    std::size_t length; // of the text that is replaced, bytes
    std::string_view by;
  };
  /// The rule for the shortest or the longest of the texts that `text` begins with.
  std::optional<rule> shortest(std::string_view text) const;
  std::optional<rule> longest(std::string_view text) const;

private:
  template <class F>
  void rules(std::string_view text, const F& f) const;

  std::vector<std::uint32_t> array_;
  std::string replacements_;
};

/// `text` as `tokenizers` maps it: by grapheme clusters of up to five bytes, else by characters; of the rules the
/// shortest counts.
std::string map_graphemes(const charsmap& map, std::string_view text, growth_budget& growth);

/// How SentencePiece prepares a text.
struct sentencepiece_rules {
  charsmap map;
  trie kept; // texts that the map does not change
  bool dummy_prefix = true;
  bool remove_extra_spaces = true;
  bool escape_spaces = true; // to U+2581
};

/// `whole`: not the content of a token, but a text, which loses the spaces at its ends and gets the prefix.
std::string prepare_sentencepiece(const sentencepiece_rules& rules, std::string_view text, bool whole,
                                  growth_budget& growth);

} // namespace troupe::tokenization
