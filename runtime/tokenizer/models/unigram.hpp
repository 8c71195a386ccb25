// The Unigram model of tokenizer.json (SentencePiece's): of all ways to cut a word into tokens, the one whose scores
// have the highest sum. Immutable, shared between threads.
#pragma once

#include "runtime/tokenizer/models/token_model.hpp"
#include "runtime/tokenizer/models/trie.hpp"

#include <array>

namespace troupe::tokenization {

class unigram final : public token_model {
public:
  /// Beyond what `tokenizers` writes, a token's score may be null: it is then not looked for in texts; or true: it is
  /// preferred to all others, as SentencePiece's user-defined ones. And `single_precision` makes sums round to float,
  /// as SentencePiece's do. Throws failure naming the malformed part.
  explicit unigram(const json::reader& model);

  std::size_t most_bytes_per_token(bool byte_level) const override;

private:
  /// O(length of the word times length of the longest token): a Viterbi search over the tokens at each character.
  void encode_word(std::string_view word, word_scratch& scratch, std::vector<token_id>& ids) const override;
  void add_unknown(std::string_view text, std::vector<token_id>& ids) const;

  std::vector<double> scores_; // by id
  trie pieces_;
  std::array<token_id, 256> byte_tokens_; // -1 if missing
  token_id unk_id_ = -1;                  // -1: none
  double unknown_score_ = 0;
  bool byte_fallback_ = false;
  bool single_ = false;
};

} // namespace troupe::tokenization
