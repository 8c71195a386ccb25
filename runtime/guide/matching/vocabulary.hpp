// The tokens of a tokenizer as bytes, arranged for masks: a prefix tree, and the same tokens cut behind their leading
// characters of an alphabet (lexer.hpp). Most tokens are only such characters, and most text of JSON is in strings.
// Built once per tokenizer, immutable, shared by all threads and guides.
#pragma once

#include "runtime/guide/regex/lexer.hpp"
#include "runtime/support/types.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {
class tokenizer;
}

namespace troupe::guides {

/// Texts and the tokens that they are. Node 0 is the root. The children of a node lie together, sorted by their byte,
/// so that those which a state allows are found without touching the others.
struct token_tree {
  struct node {
    std::uint32_t children; // the first
    std::uint32_t first;    // of its tokens
    std::uint32_t end;      // of the tokens of its subtree, which lie together
    std::uint16_t count;    // of children
    std::uint16_t own;      // tokens that end here
  };
  std::vector<node> nodes;
  std::vector<unsigned char> bytes; // by node
  std::vector<text_bounds> behind;  // what its tokens have behind it
  std::vector<token_id> tokens;

  bool empty() const { return tokens.empty(); }
};

/// The tokens as they begin with characters of an alphabet.
struct alphabet_tokens {
  using mask = std::vector<std::uint64_t>;
  static constexpr std::size_t longest = 24;
  /// Tokens of the alphabet alone, by the most characters that they may have, up to `longest`; the last are all.
  std::array<mask, longest + 2> only;
  /// The other tokens, behind those characters.
  token_tree behind;
  /// The tokens of `behind`, by the number of their leading characters, up to `longest`. `more` has all tokens with
  /// more, uncut.
  std::vector<token_tree> behind_count;
  token_tree more;
};

class guide_vocabulary {
public:
  struct entry {
    token_id id;
    std::string bytes;
  };
  /// All tokens except special ones; `end` are the tokens that end a text. `size`: the highest id + 1.
  guide_vocabulary(std::vector<entry> entries, std::vector<token_id> end, std::size_t size);
  /// `end`: beside the tokenizer's own EOS. `markers`: special tokens that are text all the same, sorted.
  static std::shared_ptr<const guide_vocabulary> of(const tokenizer& tokens, std::span<const token_id> end = {},
                                                    std::span<const token_id> markers = {});

  std::size_t size() const { return bytes_.size(); }
  std::size_t words() const { return (size() + 63) / 64; } // 64-bit words of a mask
  /// Empty for special and unused ids, which no guide allows.
  std::string_view bytes(token_id id) const;
  /// A token's bytes, with the spelling of special tokens: for text that no guide restricts.
  std::string_view any_bytes(token_id id) const;
  /// Special tokens that are no text to guides.
  std::span<const token_id> special_tokens() const { return hidden_; }
  bool is_end(token_id id) const;
  std::span<const token_id> end_tokens() const { return end_; }

  const token_tree& all() const { return all_; }
  const alphabet_tokens& of(alphabet a) const { return by_alphabet_[static_cast<std::size_t>(a)]; }

  std::size_t memory() const; // bytes, about

private:
  std::vector<std::string> bytes_; // by id
  std::map<token_id, std::string> special_;
  std::vector<token_id> hidden_;
  std::vector<token_id> end_;
  token_tree all_;
  std::array<alphabet_tokens, alphabets> by_alphabet_;
};

} // namespace troupe::guides
