// From the body of a request to what the engine is asked: OpenAI's fields, vLLM's names for what OpenAI has none, every
// value checked. Pure functions; used on worker threads, for tokenising a long text takes a while.
#pragma once

#include "api/openai/field_reader.hpp"
#include "api/openai/service.hpp"

#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

enum class dialect : std::uint8_t { completions, chat };

/// Prompts times `n`, per request.
inline constexpr std::size_t most_choices = 1024;

/// Token ids in one body of POST /detokenize.
inline constexpr std::size_t most_detokenised = 1 << 18;

/// A generation request, understood and tokenised.
struct generation_request {
  dialect speaks = dialect::completions;
  std::vector<generation> prompts; // one submission each
  std::vector<std::string> echoes; // the prompts' texts where they are to be repeated, else empty
  bool stream = false;
  bool include_usage = false; // in a stream
  bool return_token_ids = false;
};

/// Body of POST /v1/completions or /v1/chat/completions. Fields that would change the result but are not implemented
/// are refused by name; fields without influence and unknown ones are ignored, as OpenAI and vLLM do it. Throws
/// failure; failure(cancelled) soon after `stop` was asked for.
generation_request parse_generation(dialect speaks, const field_reader& body, const served_model& model,
                                    const std::stop_token& stop = {});

/// Body of POST /tokenize: `prompt`, or `messages` as in a chat.
std::vector<token_id> parse_tokenize(const field_reader& body, const served_model& model,
                                     const std::stop_token& stop = {});

/// Body of POST /detokenize: `tokens`. Special tokens are written out unless `skip_special_tokens` is true, so that
/// text comes back from /tokenize as it went in.
std::string parse_detokenize(const field_reader& body, const served_model& model);

/// Throws failure(not_found) where `model` names another model than the one that is served.
void check_model_name(const field_reader& body, const served_model& model);

} // namespace troupe
