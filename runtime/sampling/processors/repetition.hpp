// Edits against repetition that look at the order of a transcript's tokens. Pure functions, and an index of n-grams.
#pragma once

#include "runtime/sampling/processors/token_sequences.hpp"
#include "runtime/support/types.hpp"

#include <cstdint>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace troupe {

/// SequenceBias and NoBadWords: adds the bias of each sequence that `transcript` ends with, apart from its last token.
void add_sequence_biases(std::span<float> logits, const sequence_bias_list& biases,
                         std::span<const token_id> transcript);

/// RepetitionPenalty over the distinct tokens of `recent`.
void penalise_recent(std::span<float> logits, std::span<const token_id> recent, float penalty);

struct dry_options {
  float multiplier = 0; // 0: off
  float base = 1.75f;
  int allowed_length = 2; // tokens that may be repeated freely
};

/// "Don't repeat yourself" (p-e-w): where the end of `recent` was there before, of length n >= allowed_length without a
/// breaker, the token that followed it loses multiplier * base ^ (n - allowed_length), for the longest such n. A
/// breaker itself loses nothing. Takes time linear in `recent`.
void penalise_repeats(std::span<float> logits, std::span<const token_id> recent, const token_set& breakers,
                      const dry_options& options);

/// NoRepeatNGram: which tokens would complete an n-gram that was there before. n-grams are told apart by 64 bits of
/// hash.
class ngram_index {
public:
  explicit ngram_index(std::size_t n) : n_(n) {}

  /// `transcript`: all tokens so far; the last one is new.
  void append(std::span<const token_id> transcript);

  /// They cannot be chosen after `transcript`.
  void mask(std::span<float> logits, std::span<const token_id> transcript) const;

private:
  static std::uint64_t hash(std::span<const token_id> ids);

  std::size_t n_;
  std::unordered_map<std::uint64_t, std::vector<token_id>> followers_; // distinct, by the hash of n - 1 tokens
  std::unordered_set<std::uint64_t> seen_;                             // hashes of n-grams
};

} // namespace troupe
