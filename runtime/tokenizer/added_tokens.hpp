// The added tokens of tokenizer.json, which match the text literally before it is split into words: control tokens such
// as "<|im_start|>", and words added after training. Immutable, shared between threads.
#pragma once

#include "runtime/support/json/json_reader.hpp"
#include "runtime/tokenizer/models/token_model.hpp"
#include "runtime/tokenizer/normalizer.hpp"

#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace troupe::tokenization {

/// Finds the longest of a set of texts that starts at a position.
class prefix_tree {
public:
  /// Adds a token. The first one of equal texts counts.
  void add(std::string_view text, token_id id);
  bool empty() const { return edges_.empty(); }

  struct hit {
    std::size_t begin, end;
    token_id id;
  };
  /// The leftmost hit at `from` or later, and the longest of those that start there. O(length of the text passed over
  /// times length of the longest text in the tree).
  std::optional<hit> find(std::string_view text, std::size_t from) const;

private:
  std::unordered_map<std::uint64_t, std::uint32_t> edges_; // node << 8 | byte -> node; node 0 is the root
  std::vector<token_id> ids_ = {-1};                       // by node, -1 if no text ends there
  std::array<bool, 256> starts_{};                         // bytes with an edge from the root
};

struct added_token {
  std::string content;
  std::string decoded; // for the decoder: the normalised content if matched in normalised text
  bool single_word = false;
  bool left_strip = false;
  bool right_strip = false;
  bool normalized = false;
  bool special = false;
  bool skipped = false; // left out by decoding without special tokens
};

class added_tokens {
public:
  added_tokens() = default;
  /// From the `added_tokens` of tokenizer.json. Throws failure if a token is malformed or its id contradicts the model;
  /// other ids than `tokenizers` gives become those.
  added_tokens(const json::reader& list, const vocabulary& model, const normalizer& normalizer);

  /// A part of a text: an added token (id >= 0) or the text between two.
  struct part {
    std::size_t begin, end;
    token_id id;
  };
  /// Finds the tokens that match the original text (`normalized` false) or the normalised text (true), but for those
  /// that are `plain`, if there is such a function, and those that begin at places of `plain_at`, which are sorted.
  std::vector<part> cut(std::string_view text, bool normalized, const std::function<bool(token_id)>& plain,
                        std::span<const std::size_t> plain_at = {}) const;
  /// Parts of the original text that are special tokens, in order; also within others.
  std::vector<std::string_view> specials_in(std::string_view text) const;

  /// The most bytes of text that one token covers; 0 if unbounded, because a token also covers the space around it.
  std::size_t most_bytes_per_token() const;

  /// A sentence on the tokens that got other ids than the file says; empty if none did.
  std::string remark() const;

  const added_token* find(token_id id) const;
  std::optional<token_id> id_of(std::string_view content) const;
  std::size_t longest_token() const; // bytes, as decoded
  /// The highest id + 1, or 0.
  std::size_t id_end() const { return tokens_.empty() ? 0 : static_cast<std::size_t>(tokens_.rbegin()->first) + 1; }

private:
  std::map<token_id, added_token> tokens_;
  std::unordered_map<std::string, token_id> ids_;
  std::size_t renumbered_ = 0;
  std::string first_renumbered_;
  prefix_tree raw_;
  prefix_tree normalized_;
};

} // namespace troupe::tokenization
