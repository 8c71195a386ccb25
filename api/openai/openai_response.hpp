// Turns the engine's events into OpenAI's objects: whole responses, SSE events, error bodies. Plain data in, text out.
// A writer belongs to one response and is used on its connection's strand.
#pragma once

#include "api/openai/answer_timings.hpp"
#include "api/openai/chat_message.hpp"
#include "api/openai/openai_request.hpp"
#include "api/service/served_model.hpp"
#include "runtime/engine/generation.hpp"
#include "runtime/support/json/json_object.hpp"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// "stop", "length" or "cancelled".
std::string_view name_of(finish_reason reason);
/// The reason of an answer with `calls` calls of tools: "tool_calls" in place of "stop" if there are any.
std::string_view name_of(finish_reason reason, std::size_t calls);
/// The finish reason of an answer that was ended ahead of a banned text.
inline constexpr std::string_view content_filter = "content_filter";

/// HTTP's status for an error.
unsigned status_of(errc code);
/// OpenAI's name for an error, by which clients act: "model_not_found", "context_length_exceeded",
/// "rate_limit_exceeded".
std::string_view code_of(const error& what);

/// {"error":{"message","type","param","code"}}
std::string error_body(const error& what);
/// Only the object under "error".
std::string error_object(const error& what);

/// Adds `cumulative_logprob` and `score`, for choices that are ranked.
void add_ranking(json_object& to, const choice_summary& one);

/// One event of a stream: `data: …` and an empty line.
std::string sse(std::string_view data);

struct usage {
  std::uint64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
  std::uint64_t reasoning_tokens = 0;
  std::uint64_t accepted_prediction = 0, rejected_prediction = 0; // guesses; the server's own are its own matter

  void add(const done_event& done);
  std::string json() const;
};

/// The response to one generation_request. Events of prompt p, sequence i belong to choice p * n + i.
class response_writer {
public:
  response_writer(const generation_request& request, std::shared_ptr<const served_model> model);

  /// See answer_writer, whose functions of these names call these.
  void withhold(const output_filter& filter) { filter_ = filter; }
  bool is_filtered(std::size_t prompt) const;

  /// Streams only: the SSE events for `e`. Empty if it waits: for the choice's score, for the rest of the prompt's
  /// scores (an echoed prompt is one piece), or for text that decides what it is.
  std::string chunk(std::size_t prompt, const token_event& e);
  /// Streams only: the SSE events that waited for the end of the prompt's generation.
  std::string last_chunks(std::size_t prompt);
  /// Streams only: the final events, which are the usage if requested, with the timings, then [DONE].
  std::string last_chunks() const;
  /// Streams only: whether the last event was written, and has to wait for its timings. Those of a stream with usage
  /// come with that.
  bool awaits_timings() const;
  /// Streams only, once all generations are done: `events` with the timings in the last of them.
  std::string with_timings(std::string events) const;

  /// Whole responses only: keeps `e` for body().
  void add(std::size_t prompt, const token_event& e);
  std::string body() const;
  /// The answer's id.
  const std::string& id() const { return id_; }

  /// Adds the usage, scores, and the finish reason of choices that had no final token_event. Streams and whole
  /// responses call it.
  void add(std::size_t prompt, const done_event& done);

private:
  /// Text, ids and log-probabilities of one event, or of a whole choice.
  struct piece {
    std::string text;     // unless it is taken apart:
    output_deltas deltas; // of a stream
    chat_message message; // of a whole response
    std::size_t calls = 0;
    std::vector<token_id> ids;
    std::vector<sampled_token> logprobs;
    std::vector<std::size_t> offsets; // of each token in the choice's text, in characters; completions only
    std::optional<finish_reason> finish;
    bool filtered = false; // it was ended ahead of a banned text
    std::string stop;
    bool first = false;
    std::optional<choice_summary> ranking; // if ranked_
  };
  struct choice {
    std::optional<choice_parser> parser; // once it has begun
    std::size_t characters = 0, tokens = 0;
    bool started = false, ended = false;
    bool filtered() const { return parser && parser->filtered(); }
    piece all; // for whole responses; of streams, the last piece if ranked_
  };

  piece next_piece(std::size_t prompt, const token_event& e);
  std::string event_of(std::size_t prompt, std::size_t index, const piece& p) const;
  /// One for each delta; the last has the rest.
  std::string events_of(std::size_t prompt, std::size_t index, piece p) const;
  std::string message_of(const piece& p, bool whole) const;
  /// Keeps what `e` says about the prompt, if it is asked for. Returns whether there is something to send.
  bool keep_scores(std::size_t prompt, const token_event& e);
  std::string choice_json(std::size_t index, const piece& p, bool whole) const;
  bool scores_echo() const { return logprobs_ >= 0 && !echoes_.empty(); }
  std::string logprobs_of(std::size_t prompt, const piece& p) const;
  std::string prompt_logprobs(std::size_t prompt) const;
  std::string running_usage(std::size_t prompt, std::size_t index) const;

  std::shared_ptr<const served_model> model_;
  std::shared_ptr<const chat_output> output_; // null: text is content
  output_filter filter_;                      // of each choice
  bool filtered_ = false;                     // it has ended one
  dialect speaks_;
  bool stream_, include_usage_, running_usage_, return_token_ids_;
  int logprobs_, prompt_logprobs_; // alternatives of tokens and of the prompt's; -1: none
  bool ranked_;
  std::size_t n_;
  std::vector<std::size_t> prompt_sizes_;      // in tokens
  std::vector<std::vector<token_id>> prompts_; // if return_token_ids
  std::vector<std::string> echoes_;
  std::vector<std::vector<sampled_token>> scored_; // by prompt, if asked for
  std::string id_;
  json_object head_; // id, object, created and model
  std::map<std::size_t, choice> choices_;
  usage usage_;
  answer_timings timings_;
};

} // namespace troupe
