// A model whose arithmetic is a hash: each position stores the hash of its token and of all that is stored before it, and
// logits follow from that. A stale, shared or freed block is seen in the next token, or in its log-probability.
#pragma once

#include "runtime/support/types.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

#include <cstdint>
#include <memory>
#include <span>

namespace troupe::simulation {

inline constexpr int vocabulary = 48; // tokens, each a character but for the first
inline constexpr token_id end_token = 0;
inline constexpr int hidden_width = 4; // of an embedding

/// Made once.
std::shared_ptr<const tokenizer> hash_tokenizer();

/// Logits [vocabulary] of a row with this hash, whose token is `last`. Most of them make one token likely that follows
/// from the last alone, so that guesses are often right.
/// Of two thirds of all rows the likeliest.
inline token_id likely_behind(token_id last) { return 1 + (last * 7 + 3) % (vocabulary - 1); }

void hash_logits(std::uint64_t row, token_id last, std::span<float> logits);

/// Hidden states [hidden_width].
void hash_hidden(std::uint64_t row, std::span<float> hidden);

} // namespace troupe::simulation
