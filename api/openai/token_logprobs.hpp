// Log-probabilities of tokens as JSON: OpenAI's forms for chats and for completions, vLLM's for prompts. Pure
// functions.
#pragma once

#include "api/service/served_model.hpp"
#include "runtime/engine/generation.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace troupe {

/// A finite number: minus infinity, which JSON lacks, becomes -9999 as in vLLM.
std::string json_logprob(float value);
std::string json_logprob(double value);

/// Token, log-probability, bytes and alternatives of each token, as chats list them. `first_unknown`: the first token
/// is the first of a prompt, which has no log-probability.
std::string chat_logprobs(const std::vector<sampled_token>& tokens, const served_model& model,
                          bool first_unknown = false);

/// A prompt's log-probabilities, as vLLM lists them: null for the first token, then an object by token id with the
/// token itself and the `most` likeliest. A rank beyond the known alternatives is null.
std::string prompt_logprobs_json(const std::vector<sampled_token>& prompt, int most, const served_model& model);

/// Where each token begins in the text, in characters, if the first one begins at `start`.
std::vector<std::size_t> text_offsets(std::size_t start, const std::vector<sampled_token>& tokens,
                                      const served_model& model);

/// The log-probabilities of one choice of a completion: OpenAI's parallel arrays of tokens, their values, the
/// alternatives and where each token begins in the text.
class completion_logprobs {
public:
  /// Lists up to `most` alternatives, and always the token itself.
  completion_logprobs(const served_model& model, int most) : model_(&model), most_(static_cast<std::size_t>(most)) {}

  void add(const sampled_token& token, std::size_t offset);
  /// The tokens of an echoed prompt, whose text has so many characters. The first one's value is null.
  void add_prompt(const std::vector<sampled_token>& prompt, std::size_t characters);

  std::string json() const;

private:
  void append(const std::string& token, const std::string& value, const std::string& top, std::size_t offset);

  const served_model* model_;
  std::size_t most_;
  std::vector<std::string> tokens_, values_, tops_, offsets_; // as JSON
};

} // namespace troupe
