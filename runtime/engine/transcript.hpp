// Turns the tokens of one sequence into its client's events: detokenised text, cut before stop strings.
// Single-threaded; owned by the request actor.
#pragma once

#include "runtime/engine/generation.hpp"
#include "runtime/sampling/group_strategy.hpp"
#include "runtime/sampling/stop_matcher.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// What tokens add to the text of an answer to `what`, as stop strings and judges see it; null where none do.
token_text_ptr text_of_tokens(std::shared_ptr<const tokenizer> words, const generation& what);

class transcript {
public:
  /// The text continues that of `what.prompt`, so that both together are the text of all ids, unless it begins anew
  /// (what.begins_text). With a null `words` there is no text, and every token is an event.
  transcript(std::uint32_t index, std::shared_ptr<const tokenizer> words, const generation& what);

  /// Appends a token. Returns nothing while text is held back: part of a character, or a possible start of a stop
  /// string. Tokens after an event with `finish` are ignored.
  std::optional<token_event> push(const sampled_token& token);

  /// Ends the sequence here; the event flushes text that was held back.
  token_event cut(finish_reason why);

  bool finished() const { return finished_.has_value(); }

  /// Whether a stop string ended it, which the sampler cannot see.
  bool stopped_by_text() const { return stopped_by_text_; }

  /// All tokens appended so far.
  const std::vector<token_id>& ids() const { return ids_; }

  /// The sampler's state after the last of them, as sampled_token has it.
  float mirostat_mu() const { return mirostat_mu_; }

  /// What the sequence was ranked by, for the summary.
  void rank(double cumulative_logprob, double score) { cumulative_logprob_ = cumulative_logprob, score_ = score; }

  choice_summary summary() const;

private:
  void begin_text(std::shared_ptr<const tokenizer> words, const generation& what);
  void add(std::string piece);
  token_event flush();

  std::uint32_t index_;
  std::optional<stream_decoder> decoder_;
  std::string of_prompt_; // text of the prompt that the decoder still holds back
  stop_strings stop_strings_;
  stop_matcher stops_;
  std::size_t min_tokens_;
  bool with_logprobs_;
  token_event pending_; // tokens whose text is held back
  std::vector<token_id> ids_;
  float mirostat_mu_ = 0;
  std::optional<finish_reason> finished_;
  bool stopped_by_text_ = false;
  double cumulative_logprob_ = 0, score_ = 0;
};

} // namespace troupe
