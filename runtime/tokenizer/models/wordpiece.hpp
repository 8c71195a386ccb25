// The WordPiece model of tokenizer.json (BERT's): the longest token at the start of a word, then the longest that
// continues it, and so on. Immutable, shared between threads.
#pragma once

#include "runtime/tokenizer/models/token_model.hpp"
#include "runtime/tokenizer/models/trie.hpp"

namespace troupe::tokenization {

class wordpiece final : public token_model {
public:
  /// Throws failure naming the malformed part.
  explicit wordpiece(const json::reader& model);

  /// Unbounded: a word of which a part is unknown becomes one token.
  std::size_t most_bytes_per_token(bool) const override { return 0; }

private:
  /// O(length of the word times length of the longest token).
  void encode_word(std::string_view word, word_scratch& scratch, std::vector<token_id>& ids) const override;

  trie starts_;        // tokens that begin words
  trie continuations_; // tokens that continue them, without their prefix
  std::string unk_token_;
  token_id unk_id_ = -1;              // -1 if not in the vocabulary
  std::size_t most_characters_ = 100; // of a word, which is unknown if it has more
};

} // namespace troupe::tokenization
