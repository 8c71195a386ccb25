// A token that was sampled, and what clients may learn of it. Plain data.
#pragma once

#include "runtime/support/types.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

struct token_logprob {
  token_id id = 0;
  float logprob = 0;
};

struct sampled_token {
  token_id id = 0;
  float logprob = 0; // of the model's own distribution (the log-softmax of the raw logits), if asked for
  std::vector<token_logprob> top = {}; // likeliest first, ties by lower id
  // `text`: it completes a stop string, which only strategies of groups look for.
  enum class finish : std::uint8_t { none, eos, stop_token, length, text } finish = finish::none;
  float mirostat_mu = 0; // after it; comes back with the transcript when the sequence is resumed
  bool withheld = false; // a likelier one would have completed a text that the server's policy forbids
};

} // namespace troupe
