// Guesses that the text goes on as it did after an earlier occurrence of its last tokens (prompt lookup: Saxena 2023),
// in the sequence itself or in a predicted answer. Appending a token costs the same however long the text is: for a few
// lengths n, a rolling hash of the last n tokens leads to the position behind their last occurrence, which is verified
// token by token. Tables overwrite their oldest entries, so memory is bounded.
#pragma once

#include "runtime/techniques/speculation/drafter.hpp"

#include <array>
#include <cstdint>
#include <optional>

namespace troupe {

class ngram_drafter final : public drafter {
public:
  /// `prediction`: of the answer; may be empty. `expected`: tokens that the sequence may come to have, which sizes the
  /// tables; more are taken, too.
  ngram_drafter(std::span<const token_id> prediction, std::size_t expected);

  void append(std::span<const token_id> tokens) override;
  void propose(std::size_t most, std::vector<token_id>& guesses) override;

  /// 1, 2 and 3 if the match has at least 4, 8 and 16 tokens.
  std::size_t grade() const override;
  bool ready() const override { return source_.has_value(); }
  bool predicts() const override { return source_ && *source_ < predicted_; }

  /// Bytes of text and tables.
  std::size_t memory() const;

private:
  static constexpr std::array<std::size_t, 3> lengths{8, 4, 2}; // longest first
  static constexpr std::size_t longest_match = 32;              // that is told apart from longer ones

  /// From the hash of an n-gram to the position behind its last occurrence. An entry may be of another n-gram; a full
  /// bucket loses the entry entered first.
  class table {
  public:
    explicit table(std::size_t entries);
    void enter(std::uint64_t hash, std::size_t behind);
    std::size_t find(std::uint64_t hash) const; // 0: nothing, as no n-gram ends before position 0
    std::size_t bytes() const { return buckets_.size() * sizeof(bucket); }

  private:
    struct entry {
      std::uint32_t tag = 0, behind = 0;
    };
    using bucket = std::array<entry, 4>; // newest first

    std::size_t bucket_of(std::uint64_t hash) const { return static_cast<std::size_t>(hash >> shift_); }

    int shift_;
    std::vector<bucket> buckets_;
  };

  using tables = std::array<table, lengths.size()>;
  using hashes = std::array<std::uint64_t, lengths.size()>;

  static tables make_tables(std::size_t tokens);
  void roll(hashes& h, std::size_t begin, std::size_t end) const;
  void enter(tables& into, const hashes& h, std::size_t begin, std::size_t end);
  void follow(token_id token);
  void look_up();
  std::size_t match_length(std::size_t behind) const;

  std::size_t predicted_;      // tokens of the prediction
  std::vector<token_id> text_; // prediction, then the sequence
  tables in_prediction_, in_sequence_;
  hashes hashes_{};                   // of the last n tokens of the sequence
  std::optional<std::size_t> source_; // position of the next guess in the text
  std::size_t matched_ = 0;           // tokens before `source_` that equal the last ones of the sequence
};

} // namespace troupe
