// The added tokens of tokenizer.json: tokens that are found in a text as they are written, before it is cut into words
// (control tokens such as "<|im_start|>", and words added after training). Immutable, shared between threads.
#pragma once

#include "runtime/support/json_reader.hpp"
#include "runtime/tokenizer/bpe.hpp"
#include "runtime/tokenizer/normalizer.hpp"

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace troupe::tokenization {

/// Finds the longest of a set of texts that starts at a position.
class prefix_tree {
public:
  /// Where two texts are the same, the first one stays.
  void add(std::string_view text, token_id id);
  bool empty() const { return edges_.empty(); }

  struct hit {
    std::size_t begin, end;
    token_id id;
  };
  /// The leftmost hit that starts at `from` or later, and the longest of those that start there. O(length of the text
  /// passed over, times that of the longest text in the tree).
  std::optional<hit> find(std::string_view text, std::size_t from) const;

private:
  std::unordered_map<std::uint64_t, std::uint32_t> edges_; // node << 8 | byte -> node; node 0 is the root
  std::vector<token_id> ids_ = {-1};                       // by node, -1 where no text ends
  std::array<bool, 256> starts_{};                         // bytes with an edge from the root
};

struct added_token {
  std::string content;
  std::string decoded; // what the decoder sees: the normalised content if it is matched in normalised text
  bool single_word = false;
  bool left_strip = false;
  bool right_strip = false;
  bool normalized = false;
  bool special = false;
  bool skipped = false; // left out of a decode that skips special tokens
};

class added_tokens {
public:
  added_tokens() = default;
  /// From the `added_tokens` of tokenizer.json. Throws failure where a token is malformed or its id contradicts the
  /// model.
  added_tokens(const json::reader& list, const bpe& model, const normalizer& normalizer);

  /// A part of a text: an added token (id >= 0), or text between them.
  struct part {
    std::size_t begin, end;
    token_id id;
  };
  /// Finds the tokens that are matched in text as it was given (`normalized` false), or as normalised (true).
  std::vector<part> cut(std::string_view text, bool normalized) const;

  /// The most bytes of a text that one of them takes; 0 where there is no such bound, because it takes the space around.
  std::size_t most_bytes_per_token() const;

  const added_token* find(token_id id) const;
  std::optional<token_id> id_of(std::string_view content) const;
  std::size_t longest_token() const; // bytes, as the decoder sees it
  /// The highest id + 1; 0 if there are none.
  std::size_t id_end() const { return tokens_.empty() ? 0 : static_cast<std::size_t>(tokens_.rbegin()->first) + 1; }

private:
  std::map<token_id, added_token> tokens_;
  std::unordered_map<std::string, token_id> ids_;
  prefix_tree raw_;
  prefix_tree normalized_;
};

} // namespace troupe::tokenization
