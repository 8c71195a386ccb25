// What the models of tokenizer.json have in common: a vocabulary, and the encoding of one word. Immutable, shared
// between threads; every encode call has its own `word_scratch`.
#pragma once

#include "runtime/support/json/json_reader.hpp"
#include "runtime/support/types.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace troupe::tokenization {

/// The highest id allowed: tables have an entry for every id up to the highest in use.
inline constexpr std::uint64_t highest_id = (1u << 24) - 1;

/// Bytes of a token that is searched for at every character (Unigram, WordPiece, SentencePiece).
inline constexpr std::size_t longest_piece = 1024;

/// Working memory of one encode call, and a cache of its words.
struct word_scratch {
  struct symbol {
    token_id id;
    std::int32_t previous; // index, -1 at the start
    std::int32_t next;     // index, -1 at the end
    bool merged_away;
  };
  std::vector<symbol> symbols;      // BPE
  std::vector<std::uint64_t> queue; // BPE: heap of rank << 32 | index

  struct path_end {
    double score;       // of the best path to here
    std::int32_t begin; // of its last token; -1: no path
    token_id id;
  };
  std::vector<path_end> ends; // Unigram: by byte

  struct string_hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  struct range {
    std::uint32_t begin, count; // in known_ids
  };
  std::unordered_map<std::string, range, string_hash, std::equal_to<>> known;
  std::vector<token_id> known_ids;
};

/// Texts by id and ids by text. Ids may have holes.
class vocabulary {
public:
  vocabulary() = default;
  /// From `{"text": id}`. Throws failure naming the malformed entry.
  explicit vocabulary(const json::reader& texts_with_ids);
  vocabulary(vocabulary&&) = default; // heap memory moves along
  vocabulary& operator=(vocabulary&&) = default;

  /// Room for `count` tokens of `bytes` bytes in all, with ids below `id_end`; to be called before `add`, once.
  void reserve(std::size_t count, std::size_t bytes, std::size_t id_end);
  /// False if the id is taken. Of equal texts, the last one is found.
  bool add(std::string_view text, token_id id);

  std::optional<token_id> id_of(std::string_view text) const;
  /// Empty for an unused id (and for the empty token).
  std::string_view text(token_id id) const;
  bool has(token_id id) const;
  /// The number of texts, which is less than id_end() if ids have holes.
  std::size_t size() const { return ids_.size(); }
  std::size_t longest() const; // bytes
  /// The highest id + 1.
  std::size_t id_end() const { return texts_.size(); }

private:
  std::vector<char> bytes_;             // all texts, concatenated; never reallocated
  std::vector<std::string_view> texts_; // by id, into bytes_; data() is null for a hole
  std::unordered_map<std::string_view, token_id> ids_;
};

/// The name of a byte's token, "<0x0A>".
std::string byte_token_name(int byte);

class token_model {
public:
  virtual ~token_model() = default;
  token_model(const token_model&) = delete;
  token_model& operator=(const token_model&) = delete;

  /// Appends the ids of `word` to `ids`. Throws failure(bad_request) for a word of 2^31 bytes, or for one that the
  /// model has no token for.
  void encode(std::string_view word, word_scratch& scratch, std::vector<token_id>& ids) const;

  /// The most bytes of words that one token can represent; 0 if unbounded, because unknown characters are dropped or
  /// fused. `byte_level`: words are spelled with byte_level_alphabet().
  virtual std::size_t most_bytes_per_token(bool byte_level) const = 0;

  const vocabulary& words() const { return words_; }

protected:
  token_model() = default;
  /// O(n log n) in the length of the word.
  virtual void encode_word(std::string_view word, word_scratch& scratch, std::vector<token_id>& ids) const = 0;

  vocabulary words_;
};

/// From the `model` of tokenizer.json: BPE, Unigram or WordPiece. Throws failure naming the malformed or unsupported
/// part.
std::unique_ptr<const token_model> make_token_model(const json::reader& model);

} // namespace troupe::tokenization
