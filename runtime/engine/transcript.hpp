// One sequence's way from tokens to what its client sees: detokenised text, cut before stop strings, in events. Plain and
// single-threaded; owned by the request actor.
#pragma once

#include "runtime/engine/generation.hpp"
#include "runtime/sampling/stop_matcher.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

class transcript {
public:
  /// `tokenizer` may be null: then there is no text, and every token is an event.
  transcript(std::uint32_t index, std::shared_ptr<const tokenizer> words, const generation& what);

  /// Takes the next token. Nothing to tell the client while text is held back: half a character, or what may become a
  /// stop string. After an event with `finish` no more tokens are taken.
  std::optional<token_event> push(const sampled_token& token);

  /// Ends the sequence where it stands.
  token_event cut(finish_reason why);

  bool finished() const { return finished_.has_value(); }

  /// Whether text ended it, which the sampler does not know.
  bool stopped_by_text() const { return stopped_by_text_; }

  /// All tokens taken so far.
  const std::vector<token_id>& ids() const { return ids_; }

  choice_summary summary() const;

private:
  void add(const std::string& piece);
  token_event take_pending();

  std::uint32_t index_;
  std::optional<stream_decoder> decoder_;
  stop_strings stop_strings_;
  stop_matcher stops_;
  bool with_logprobs_;
  token_event pending_; // tokens whose text is held back
  std::vector<token_id> ids_;
  std::optional<finish_reason> finished_;
  bool stopped_by_text_ = false;
};

} // namespace troupe
