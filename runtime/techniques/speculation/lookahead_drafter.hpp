// Lookahead decoding (Fu et al. 2024), which needs no second model: the model itself corrects a window of guesses of
// the next tokens (Jacobi iteration). Each step's rows are the guesses; what the model chooses at each of them, even
// behind a wrong one, is the next guess of the position that follows. The tokens that succeed each other in these
// corrections are kept as n-grams, and a step proposes the newest n-gram that continues the last token, then the
// window's guesses.
//
// The paper runs the window and several n-grams side by side under a special attention mask. Here a proposal is one
// plain continuation of the sequence, so that neither mask nor forked sequences are needed: n-grams are verified and
// the window is corrected by the same rows, each in the context of those before it. Rows are what a step pays for, and
// where they are cheap enough to try several n-grams, a longer proposal gains more.
#pragma once

#include "runtime/techniques/speculation/drafter.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>

namespace troupe {

/// A few tokens that succeed each other.
class short_ngram {
public:
  static constexpr std::size_t longest = 6;

  short_ngram() = default;
  explicit short_ngram(token_id first) { push(first); }

  /// Drops the first token if there is no room.
  void push(token_id t);
  std::span<const token_id> tokens() const { return {tokens_.data(), size_}; }

private:
  std::array<token_id, longest> tokens_{};
  std::size_t size_ = 0;
};

/// What has followed a token, and a pair of tokens, most recently. The oldest tokens and pairs are forgotten.
class ngram_pool {
public:
  explicit ngram_pool(std::size_t most_keys = 4096) : most_keys_(most_keys) {}

  /// Takes an n-gram of at least two tokens.
  void add(std::span<const token_id> ngram);

  /// What followed `last`, if possible after `before`; empty if nothing is known. `of_pair`: it was after `before`.
  struct continuation {
    std::span<const token_id> tokens;
    bool of_pair = false;
  };
  continuation find(std::optional<token_id> before, token_id last) const;

  std::size_t keys() const { return pool_.size(); }

private:
  using key = std::uint64_t; // the token; or the token before it + 1, and the token

  static key key_of(token_id last) { return static_cast<std::uint32_t>(last); }
  static key key_of(token_id before, token_id last) {
    return (static_cast<key>(static_cast<std::uint32_t>(before)) + 1) << 32 | static_cast<std::uint32_t>(last);
  }
  void enter(key k, std::span<const token_id> tokens);

  std::size_t most_keys_;
  std::unordered_map<key, short_ngram> pool_;
  std::deque<key> oldest_; // in the order in which they were first seen
};

class lookahead_drafter final : public drafter {
public:
  static constexpr std::size_t window = 16; // guesses

  /// Without `pool`, plain Jacobi iteration (Santilli et al. 2023): the window's guesses alone.
  explicit lookahead_drafter(bool pool = true) : keeps_ngrams_(pool) {}

  void append(std::span<const token_id> tokens) override;
  void propose(std::size_t most, std::vector<token_id>& guesses) override;
  void observe(std::span<const token_id> choices) override;

  /// 1 and 2 if the proposal begins with what followed the last token, or the last two.
  std::size_t grade() const override;
  std::optional<token_id> first() const override;
  bool ready() const override { return known_ > 0; }

private:
  /// A guess, and the corrections that led to it: each token was chosen at the row of the one before it.
  using trail = short_ngram;

  ngram_pool::continuation continuation() const;

  void advance(std::size_t tokens);
  void fill();

  bool keeps_ngrams_;
  ngram_pool pool_;
  trail text_;                        // the last tokens of the sequence
  std::array<token_id, 64> recent_{}; // of the sequence, from which new guesses are taken
  std::uint64_t known_ = 0;           // tokens of the sequence
  std::deque<trail> window_;          // [i]: the guess of the token i places behind the next
  std::vector<trail> proposed_;
  std::size_t advanced_ = 0; // tokens that `observe` has already moved the window over
};

} // namespace troupe
