// Samples tokens from logits on the device, bit-equal to runtime/sampling/sampler.hpp: integer weights, whose sums do
// not depend on order, Philox numbers by seed and position, tokens ordered by id. Nothing is sorted: thresholds are
// found digit by digit of the logits' order (radix selection), tokens by narrowing the range in which a running sum
// passes a mark. One block per row.
#pragma once

#include "kernels/cuda/device.hpp"

namespace troupe::kernels::cuda {

struct logit_bias {
  std::int32_t id = 0;
  float bias = 0;
};

struct token_count {
  std::int32_t id = 0;
  std::int32_t generated = 0; // occurrences after the prompt
};

inline constexpr int most_top_logprobs = 20;

/// The sampling of one token. Lists are in device memory; their ids are distinct and within the vocabulary.
struct sampling_row {
  std::int32_t logit_row = 0;
  std::int32_t greedy = 0;
  float inverse_temperature = 1;    // 1 / temperature, rounded to f32
  std::int32_t top_k = 0;           // 0: off
  std::uint64_t top_p = 1ull << 32; // in units of 2^-32, rounded; 2^32: off
  float min_p = 0;                  // 2^-41 and less: off
  float repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  std::uint64_t seed = 0, position = 0; // see runtime/sampling/philox.hpp
  std::uint32_t index = 0;
  std::int32_t logprobs = -1; // -1: none; else the number of likeliest tokens, up to most_top_logprobs
  const logit_bias* biases = nullptr;
  const token_count* counts = nullptr;  // of prompt and generated tokens
  const std::int32_t* masked = nullptr; // cannot be chosen
  std::int32_t bias_count = 0, counted = 0, masked_count = 0;
  std::int32_t slot = 0;    // that receives the token, if there are slots
  std::int32_t pending = 0; // 1: the token now in the slot is not in `counts` yet
};

/// A sampled token. The host computes log-probabilities from it: that of logit x is
/// float(double(min(x - largest, 0)) - log(double(total) / 2^40)).
struct sampled_row {
  std::int32_t token = -1; // -1: every logit is masked, NaN or minus infinity
  std::int32_t top_count = 0;
  float largest = 0;                            // of the raw logits; set if log-probabilities are requested
  float logit = 0;                              // the token's
  std::uint64_t total = 0;                      // sum of the raw logits' weights
  std::int32_t top_ids[most_top_logprobs] = {}; // likeliest first, ties by lower id
  float top_logits[most_top_logprobs] = {};
};

/// `rows` and `out` are in device memory. `edited`: scratch, [count][vocab] floats, used only by rows that change
/// logits.
struct sampling_params {
  const float* logits = nullptr; // [logit rows][stride], not changed
  std::size_t stride = 0;
  std::int32_t vocab = 0;
  const sampling_row* rows = nullptr;
  sampled_row* out = nullptr;
  float* edited = nullptr;
  std::int32_t* slot_tokens = nullptr; // or null; the token last sampled for each slot, 0 if none could be
};
void sample(const stream& on, const sampling_params& params, std::size_t count);

} // namespace troupe::kernels::cuda
