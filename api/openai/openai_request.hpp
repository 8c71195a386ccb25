// Turns request bodies into generations for the engine: OpenAI's fields, and vLLM's for features that OpenAI lacks.
// Every value is checked. Pure functions, used on worker threads because tokenising a long text takes a while.
#pragma once

#include "api/service/served_model.hpp"
#include "runtime/chat/output/chat_output.hpp"
#include "runtime/engine/generation.hpp"
#include "runtime/model/default_sampling.hpp"
#include "runtime/support/json/field_reader.hpp"

#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

enum class dialect : std::uint8_t { completions, chat };

/// Prompts times `n`, per request.
inline constexpr std::size_t most_choices = 1024;

/// Log-probabilities of prompts in one answer: tokens times one more than the alternatives, for each choice that lists
/// them.
inline constexpr std::size_t most_scores = 1 << 20;

/// Token ids in one body of POST /detokenize.
inline constexpr std::size_t most_detokenised = 1 << 18;

/// A parsed and tokenised generation request.
struct generation_request {
  dialect speaks = dialect::completions;
  std::vector<generation> prompts; // one submission each
  std::vector<std::string> echoes; // the prompts' texts for `echo`, else empty
  bool stream = false;
  bool include_usage = false; // in a stream
  bool running_usage = false; // in each of its chunks, of the chunk's choice
  bool return_token_ids = false;
  int prompt_logprobs = -1; // alternatives in vLLM's list of the prompt's log-probabilities; -1: no list
  std::shared_ptr<const chat_output> output; // how the text is taken apart; null: it is the content
  std::vector<std::string> notes;            // on fields that nothing reads
};

/// Parses the body of POST /v1/completions or /v1/chat/completions. Fields that would change the result but are not
/// implemented are refused by name; unknown fields and those without influence are ignored, as by OpenAI and vLLM.
/// `envelope`: members of the body that the caller reads. `users`: what those of the endpoint expect of sampling that
/// neither they nor the model name. Throws failure, and failure(cancelled) soon after `stop` is requested.
generation_request parse_generation(dialect speaks, const field_reader& body, const served_model& model,
                                    const std::stop_token& stop = {}, std::span<const std::string_view> envelope = {},
                                    sampling_convention users = sampling_convention::openai);

struct tokenized_prompt {
  std::vector<token_id> ids;
  std::vector<std::string> notes; // on what of a chat was moved or left out
};

/// Parses the body of POST /tokenize: `prompt`, or `messages` as in a chat.
tokenized_prompt parse_tokenize(const field_reader& body, const served_model& model, const std::stop_token& stop = {});

struct counted_prompt {
  std::size_t tokens = 0;
  std::vector<std::string> notes; // on that, and on fields that nothing reads
};

/// The tokens of a chat's prompt, which need not fit into the context. More than `most` need not be counted.
counted_prompt count_chat_tokens(const field_reader& body, const served_model& model, const std::stop_token& stop,
                                 std::size_t most);

/// Parses the body of POST /detokenize: `tokens`. Special tokens are written out unless `skip_special_tokens` is true,
/// so that /detokenize inverts /tokenize.
std::string parse_detokenize(const field_reader& body, const served_model& model);

/// The tokens of a text, which stands in field `key`. Refused before tokenising it if it cannot fit into the context.
std::vector<token_id> encoded_prompt(const field_reader& body, const char* key, const served_model& model,
                                     std::string_view text, bool special, std::span<const std::size_t> plain_at = {});

/// The tokens of a text as `encoded_prompt` gives them, without special tokens at its ends and with those within it
/// taken as plain text.
std::vector<token_id> encoded_plain(const field_reader& body, const char* key, const served_model& model,
                                    std::string_view text);

/// vLLM's `cache_salt`, by which cached prefixes are kept apart; empty if absent.
std::string read_cache_salt(const field_reader& body);

/// Throws failure(not_found) if `model` names neither the served model nor a variant (runtime/techniques/model_variants).
void check_model_name(const field_reader& body, const served_model& model);

/// Throws failure(unsupported) if the body's `model` names a variant, for `what` these cannot do: "embeddings are made".
void require_model_itself(const field_reader& body, const served_model& model, const std::string& what);

/// The model's name in answers.
std::string name_in_answers(const generation_request& request, const served_model& model);

} // namespace troupe
