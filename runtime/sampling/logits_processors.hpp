// The steps between logits and the choice of a token, each with the semantics of transformers' processor of that name.
// Edits change a few logits of a row in place; filters shrink the set of candidates. Pure functions: sequence data is
// passed in. The sampler composes them; a new processor is one more function of either kind.
#pragma once

#include "runtime/sampling/candidates.hpp"
#include "runtime/sampling/token_counts.hpp"
#include "runtime/support/types.hpp"

#include <span>
#include <utility>

namespace troupe {

// Edits: `logits` is [vocab]; ids outside it are ignored.

/// SequenceBias for single tokens: logit += bias.
void add_bias(std::span<float> logits, std::span<const std::pair<token_id, float>> biases);

/// RepetitionPenalty, over prompt and generated tokens: positive logits are divided by `penalty`, others multiplied.
void penalise_repetition(std::span<float> logits, const token_counts& counts, float penalty);

/// OpenAI's penalties, over generated tokens: logit -= count * frequency + presence.
void penalise_presence(std::span<float> logits, const token_counts& counts, float presence, float frequency);

/// MinLength, bad words, grammars: these tokens cannot be chosen.
void mask(std::span<float> logits, std::span<const token_id> ids);

/// Temperature: `scaled` = logits / temperature (by its reciprocal); both [vocab] and possibly the same memory.
void apply_temperature(std::span<const float> logits, float temperature, std::span<float> scaled);

// Filters: the likeliest token always stays.

/// TopK: keeps the tokens whose logit is at least the k-th largest, so more than k if logits are equal; all for k <= 0.
void keep_top_k(candidates& tokens, int k);

/// TopP (nucleus): keeps the smallest set of likeliest tokens whose probabilities, among the candidates, sum to at
/// least p; of equally likely tokens at its edge the lowest ids. p >= 1 keeps all. The edge is found by a histogram of
/// weight over logit; only the tokens of one of its 2048 slices are sorted.
void keep_top_p(candidates& tokens, float p);

/// MinP: keeps the tokens at least p times as likely as the likeliest.
void keep_min_p(candidates& tokens, float p);

} // namespace troupe
