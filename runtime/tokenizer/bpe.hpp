// The BPE model of tokenizer.json: vocabulary, merges, and the encoding of one word. Immutable, shared between threads;
// every encode call has its own `bpe_scratch`.
#pragma once

#include "runtime/support/json_reader.hpp"
#include "runtime/support/types.hpp"
#include "runtime/tokenizer/flat_map.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace troupe::tokenization {

/// The highest id allowed: tables have an entry for every id up to the highest in use.
inline constexpr std::uint64_t highest_id = (1u << 24) - 1;

/// Working memory of one encode call, and a cache of its words.
struct bpe_scratch {
  struct symbol {
    token_id id;
    std::int32_t previous; // index, -1 at the start
    std::int32_t next;     // index, -1 at the end
    bool merged_away;
  };
  std::vector<symbol> symbols;
  std::vector<std::uint64_t> queue; // heap of rank << 32 | index

  struct string_hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  struct range {
    std::uint32_t begin, count; // in known_ids
  };
  std::unordered_map<std::string, range, string_hash, std::equal_to<>> known;
  std::vector<token_id> known_ids;
};

class bpe {
public:
  /// From the `model` of tokenizer.json. Throws failure naming the malformed or unsupported part.
  explicit bpe(const json::reader& model);
  bpe(const bpe&) = delete;
  bpe& operator=(const bpe&) = delete;

  /// Appends the ids of `word` to `ids`. O(n log n) in its length. Throws failure(bad_request) for a word of 2^31
  /// bytes, or for an unknown character if the model's `unk_token` is not in the vocabulary.
  void encode(std::string_view word, bpe_scratch& scratch, std::vector<token_id>& ids) const;

  std::optional<token_id> id_of(std::string_view token) const;
  /// The text of a token, empty for an unused id (and for the empty token).
  std::string_view token(token_id id) const;
  bool has(token_id id) const;
  /// The most bytes of words that one token can represent; 0 if unbounded, because unknown characters are dropped or
  /// fused. `byte_level`: words are spelled with byte_level_alphabet().
  std::size_t most_bytes_per_token(bool byte_level) const;
  /// The number of tokens, which is less than id_end() if ids have holes.
  std::size_t size() const { return ids_.size(); }
  std::size_t longest_token() const; // bytes
  /// The highest id + 1.
  std::size_t id_end() const { return tokens_.size(); }

private:
  struct merge {
    std::uint32_t rank;
    token_id id;
  };
  static std::uint64_t pair_key(token_id left, token_id right) {
    return std::uint64_t(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }

  void read_vocabulary(const json::reader& vocab);
  void read_merges(const json::reader& merges);
  void add_merge(const json::reader& where, std::size_t rank, std::string_view left, std::string_view right);
  void to_symbols(std::string_view word, bpe_scratch& scratch) const;
  void merge_symbols(bpe_scratch& scratch) const;

  std::string texts_;                    // all tokens, concatenated
  std::vector<std::string_view> tokens_; // by id, into texts_; data() is null for a hole
  std::unordered_map<std::string_view, token_id> ids_;
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
