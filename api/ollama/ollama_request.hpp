// Ollama's requests to generate, translated into completions and chats (translated_request.hpp). Pure functions, used
// on worker threads.
#pragma once

#include "api/openai/openai_request.hpp"
#include "api/service/served_model.hpp"
#include "runtime/support/json/field_reader.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace troupe {

enum class ollama_call : std::uint8_t { generate, chat };

/// Options and messages are bounded as those of chats.
struct ollama_request {
  ollama_call call = ollama_call::generate;
  std::string model; // as the client named it
  bool stream = true;
  bool unloads = false;       // as asks_to_unload
  bool tells_context = false; // the answer ends with the tokens of prompt and answer
  std::optional<std::chrono::milliseconds> keep_alive;
  std::vector<std::string> notes; // on what has no effect
  generation_request asked;       // without prompts if nothing is to be generated: the client wants the model loaded
};

/// Parses the body of POST /api/generate or /api/chat. Fields that would change the answer but are not implemented are
/// refused by name; unknown options and fields are ignored, which `notes` tell. Throws failure.
ollama_request parse_ollama(ollama_call call, const field_reader& body, const served_model& model,
                            const std::stop_token& stop = {});

/// Throws failure(not_found) unless `model` (or the older `name`) is that of the model served, with or without the tag
/// ":latest". Returns it as given.
std::string ollama_model_name(const field_reader& body, const served_model& model);

/// How long `keep_alive` has the model stay loaded: seconds, or a text as Ollama's clients write it, such as "5m" or
/// "1h30m"; below 0: for good. It counts where models are loaded on demand; elsewhere they stay. Throws failure.
std::optional<std::chrono::milliseconds> read_keep_alive(const field_reader& body);

/// Whether the body asks for nothing but that its model be unloaded: no prompt, and a `keep_alive` of 0. Throws failure.
bool asks_to_unload(ollama_call call, const field_reader& body);

/// The name under which Ollama's clients see the model: with the tag ":latest" unless it has one.
std::string listed_name(const served_model& model);

/// Refuses `options` that are of another kind. Returns notes on those that have no effect.
std::vector<std::string> check_ollama_options(const field_reader& body, const served_model& model);

} // namespace troupe
