// What becomes of a step's logits: the sampler tells each request, and is told by its device and its makers of masks.
#pragma once

#include "actors/messages.hpp"

namespace troupe {

/// To a request: the next token of one of its sequences.
struct token_sampled {
  sequence_id sequence;
  sampled_token token;
};

/// To a request: how many tokens were guessed for it in one step, and how many of them were right.
struct guesses_verified {
  std::uint64_t request = 0; // its number
  std::int32_t guesses = 0;
  std::int32_t right = 0;
  bool predicted = false; // by the client
};

/// To the scheduler: tokens that earlier steps left out, because their masks were late.
struct late_tokens_sampled {
  step_result_ptr result;
};

/// To the sampler, from the thread that makes masks: one that was late is there.
struct mask_ready {};

/// To the sampler, from the device: its oldest sample is done.
struct sample_done {};

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::token_sampled)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::guesses_verified)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::late_tokens_sampled)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::mask_ready)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::sample_done)
