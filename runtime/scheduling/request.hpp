// A client's request, in its two forms: as asked for, and as a model was found to be able to serve it. The second is
// made once, and everybody from the request's actor to the sampler shares it. A new field is a member here and nowhere
// else. Plain data.
#pragma once

#include "runtime/sampling/group_strategy.hpp"
#include "runtime/sampling/pooling.hpp"
#include "runtime/sampling/sampling_params.hpp"
#include "runtime/scheduling/request_ledger.hpp"
#include "runtime/scheduling/row_features.hpp"
#include "runtime/support/types.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class constraint; // runtime/techniques/constraint.hpp

using token_list = std::shared_ptr<const std::vector<token_id>>;

/// How the reasoning of an answer is marked, for a client that wants it to end early.
struct reasoning_marks {
  std::string begin, end;        // texts; the first behind white space, at the answer's beginning
  bool is_open = false;          // the answer begins within it
  std::vector<token_id> closing; // the tokens of what ends it

  /// Whether an answer of this text is within its reasoning.
  bool holds(std::string_view text) const;
};

/// What a client asks for, as parsed: a prompt and how to continue it, `sampling.n` times.
/// A sequence of a request that another process has run in part.
struct begun_sequence {
  std::vector<token_id> emitted;
  float mirostat_mu = 0; // after the last of them
  enum class end : std::uint8_t { none, stop, length } ended = end::none;
};

struct generation {
  std::vector<token_id> prompt;
  sampling_params sampling;
  int priority = 0;                           // higher runs first
  int preference = 0;                         // the same among a client's own of the same priority
  bool skip_special_tokens = true;            // in the text; the ids are always complete
  std::chrono::milliseconds timeout{0};       // from submission to the last token; 0: the engine's limit
  std::chrono::milliseconds ttft_timeout{0};  // to the first token; 0: the engine's limit
  std::vector<token_id> prediction = {};      // of the answer: a source of guesses (OpenAI's `prediction`)
  std::vector<token_id> shown_tokens = {};    // special ones that are part of the text all the same; sorted
  pooling embed = pooling::none;              // other than none: of the prompt, and nothing is generated
  std::int32_t second = 0;                    // of two texts: where the second begins; 0: there is one
  std::vector<token_id> negative_prompt = {}; // with a guidance_scale; empty: the prompt's last token
  std::string client = {};                    // who asks: those who wait are served in turn by it
  bool begins_text = false; // the answer is a text of its own, as a chat's message is; else it continues the prompt's
  std::string cache_salt = {};                           // only requests of the same one share cached prefixes
  std::string model = {};                                // that it is for, by its name; empty: the only one
  std::shared_ptr<const reasoning_marks> reasoning = {}; // null: an answer has none that could end early
  /// Its n sequences as far as another process has got; null, or empty: it begins here. Not where log-probabilities are
  /// asked for, nor with groups and best_of.
  std::shared_ptr<const std::vector<begun_sequence>> begun = {};
};

/// A generation that was checked (runtime/engine/checked_generation.hpp). Does not change once it is shared: what
/// differs between its sequences, or between two replicas that run it, stands beside it.
///
/// Of the fields that it was asked with, `sampling.max_tokens` fits the context (also behind the negative prompt),
/// `sampling.techniques` are fitted to the model, `timeout` is the one that holds, and `negative_prompt` is the prompt of a twin, which
/// has the same answer; empty: there is no twin.
struct request : generation {
  row_features_ptr features = {};                 // of all its rows; null: none
  token_text_ptr text = {};                       // of groups with stop strings, or judged by their text
  std::shared_ptr<const constraint> follows = {}; // what the answers follow, once it was compiled; null: nothing
  // At the engine: first come, first served of a client's with the same priority; ties by number.
  std::uint64_t arrival = 0;
};

using request_ptr = std::shared_ptr<const request>;

/// A sequence resumed after another scheduler has run it in part.
struct resumed_sequence {
  std::uint32_t index = 0;
  std::vector<token_id> emitted;
  float mirostat_mu = 0; // after the last of them
};

/// A request on its way to a scheduler: which one, and how far it is.
struct admission {
  using time_point = request_ledger::time_point;

  std::uint64_t request = 0; // its number in the replica
  request_ptr asked;
  bool again = false;                          // readmitted: the queue is never too full for it
  std::vector<resumed_sequence> resumed;       // unfinished sequences of the n; empty: all n, from the prompt
  std::int32_t expected_cached = 0;            // tokens of the prompt, as it was routed; for load reports alone
  int moves_to = -1;                           // the replica that its blocks are sent to meanwhile; -1: none
  std::shared_ptr<request_ledger> ledger = {}; // where its time goes; null: nobody asks
  wait_cause came = wait_cause::queue;         // what its wait in the queue is called there
  time_point first_by = time_point::max();     // its first token must be there by then, or it is not wanted
  time_point all_by = time_point::max();       // and its last one
};

/// Parts of a request, which they keep.
inline std::shared_ptr<const sampling_params> sampling_of(const request_ptr& of) { return {of, &of->sampling}; }
inline token_list prompt_of(const request_ptr& of) { return {of, &of->prompt}; }

} // namespace troupe
