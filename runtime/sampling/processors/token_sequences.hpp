// Sequences of tokens that a request names: words that it forbids or favours, and what ends repetitions. Checked on
// construction, then immutable and shared by all copies. May be read on any thread.
#pragma once

#include "runtime/sampling/sampling_lists.hpp"
#include "runtime/support/types.hpp"

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Added to the logit of a sequence's last token wherever the transcript ends with the tokens before it.
struct sequence_bias {
  std::vector<token_id> tokens; // at least one
  float bias = 0;               // minus infinity: that token cannot be chosen
};

class sequence_bias_list : public shared_list<sequence_bias> {
public:
  sequence_bias_list() = default;
  /// Throws failure(bad_request) naming `field` if there are too many or too long ones, one is empty, an id is negative
  /// or a bias out of range.
  sequence_bias_list(std::vector<sequence_bias> entries, const char* field = "bad_words");

  std::size_t longest() const; // tokens of the longest
};

/// Distinct ids, ascending.
class token_set : public shared_list<token_id> {
public:
  token_set() = default;
  /// Throws failure(bad_request) naming `field` if there are more than `most`, or one is negative.
  token_set(std::vector<token_id> ids, const char* field, std::size_t most);

  bool contains(token_id id) const;
};

/// Turns a text into ids, without special tokens.
using encode_text = std::function<std::vector<token_id>(std::string_view)>;

/// What forbids each of these words, as vLLM: at the beginning of a text, and behind a space where the tokens of that
/// are as many but begin with another. Throws failure(bad_request) for a word without tokens.
std::vector<sequence_bias> forbid_words(std::span<const std::string> words, const encode_text& encode);

/// The last token of each text, of the text alone and of the text behind a letter, as the inventor of DRY has it.
/// Throws failure(bad_request) for a text without tokens.
std::vector<token_id> breaker_tokens(std::span<const std::string> texts, const encode_text& encode);

/// The tokens of the texts that end repetitions unless a request says which: "\n", ":", "\"" and "*".
token_set usual_breakers(const encode_text& encode);

} // namespace troupe
