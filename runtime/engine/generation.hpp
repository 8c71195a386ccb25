// A client's request (runtime/scheduling/request.hpp) and the events that answer it: plain data shared by the engine,
// its actors and the servers.
#pragma once

#include "runtime/sampling/sampled_token.hpp"
#include "runtime/scheduling/request.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/types.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace troupe {

/// The time a request may take, from what it asks for in `field` (0: nothing) and the engine's limit (0: none). Throws
/// failure(bad_request) if it asks for more than the limit.
inline std::chrono::milliseconds timeout_of(std::chrono::milliseconds asked, std::chrono::milliseconds limit,
                                            const char* field = "timeout") {
  if (asked.count() > 0 && limit.count() > 0 && asked > limit)
    refuse_field(field,
                 "must be at most the server's limit of " + std::to_string(limit.count()) + " ms, not " +
                   std::to_string(asked.count()) + " ms");
  return asked.count() > 0 ? asked : limit;
}

/// timeout: its time was over, and what it has is told.
enum class finish_reason : std::uint8_t { stop, length, cancelled, timeout };

/// Newly generated text of one sequence: a whole number of UTF-8 characters, never part of a stop string.
/// The last event of each sequence carries `finish` (its text may be empty); none follows it.
struct token_event {
  std::uint32_t index = 0;    // which of the n sequences
  std::uint32_t position = 0; // of token_ids[0] among the generated tokens
  std::string text;
  std::vector<token_id> token_ids;     // tokens that this text completed; empty if only held-back text is flushed
  std::vector<sampled_token> logprobs; // one per token id if asked for, else empty
  std::optional<finish_reason> finish;
  std::string stop; // the stop string that ended it, if one did
  // The log-probabilities of prompt tokens, if asked for: with index 0, in order, before any token. The first token of
  // a prompt has none (its logprob is 0 and `top` empty).
  std::vector<sampled_token> prompt;
  bool replayed = false; // of what another process has generated (generation::begun)
};

struct choice_summary {
  std::uint32_t index = 0;
  finish_reason reason = finish_reason::stop;
  std::uint32_t tokens = 0; // generated
  // Set for choices that come best first; else 0:
  double cumulative_logprob = 0;
  double score = 0; // what they were ranked by
};

/// Ends a request. Times are wall time in milliseconds.
struct done_event {
  std::vector<choice_summary> choices;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t completion_tokens = 0;                           // over all choices
  std::uint32_t cached_tokens = 0;                               // of the prompt, found in the prefix cache
  double queue_ms = 0;                                           // submission to first planned step
  double prefill_ms = 0;                                         // to the first token
  double decode_ms = 0;                                          // to the last
  double total_ms = 0;                                           // submission to this
  std::uint32_t accepted_guesses = 0, rejected_guesses = 0;      // of tokens that follow
  std::uint32_t accepted_predicted = 0, rejected_predicted = 0;  // of these, from the request's `prediction`
  std::uint32_t withheld_tokens = 0;                             // instead of which another had to be chosen, by policy
  std::vector<float> embedding = {};                             // [hidden], as pooled; of requests for one
  wait_parts spent = {};                                         // total_ms by cause
  std::shared_ptr<const std::vector<begun_sequence>> begun = {}; // handed over, to go on elsewhere; null: it has ended
};

/// Exactly one done_event or error ends every request.
using event = std::variant<token_event, done_event, error>;

/// Receives the events of one request: in order, never concurrently; must not block. If it throws, the request ends and
/// the sink is offered one last event, the error.
using event_sink = std::function<void(event)>;

} // namespace troupe
