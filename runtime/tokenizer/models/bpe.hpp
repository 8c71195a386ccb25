// The BPE model of tokenizer.json: pairs of neighbours are merged in the order of their ranks. Immutable, shared
// between threads.
#pragma once

#include "runtime/tokenizer/models/flat_map.hpp"
#include "runtime/tokenizer/models/token_model.hpp"

#include <array>

namespace troupe::tokenization {

class bpe final : public token_model {
public:
  /// Beyond what `tokenizers` writes, a merge may have a third element, its rank, which several merges may share: then
  /// the leftmost pair goes first, as in SentencePiece and tiktoken. Throws failure naming the malformed or unsupported
  /// part.
  explicit bpe(const json::reader& model);

  std::size_t most_bytes_per_token(bool byte_level) const override;

private:
  struct merge {
    std::uint32_t rank;
    token_id id;
  };
  static std::uint64_t pair_key(token_id left, token_id right) {
    return std::uint64_t(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }

  /// O(n log n). Unknown characters are dropped if the model has no token for them.
  void encode_word(std::string_view word, word_scratch& scratch, std::vector<token_id>& ids) const override;

  void read_characters();
  void read_merges(const json::reader& merges);
  void add_merge(const json::reader& where, std::size_t entry, std::uint32_t rank, std::string_view left,
                 std::string_view right);
  void to_symbols(std::string_view word, word_scratch& scratch) const;
  void merge_symbols(word_scratch& scratch) const;

  flat_map<merge> merges_;
  flat_map<token_id> characters_;         // tokens of a single character
  std::array<token_id, 256> byte_tokens_; // "<0x00>" to "<0xFF>", -1 if missing
  std::string unk_token_;
  bool has_unk_ = false;
  token_id unk_id_ = -1; // -1 if not in the vocabulary
  bool fuse_unk_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
};

} // namespace troupe::tokenization
