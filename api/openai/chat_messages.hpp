// The `messages` and `tools` of a chat, checked and brought into the one form that templates expect. Pure functions;
// used on worker threads.
#pragma once

#include "api/openai/field_reader.hpp"
#include "api/openai/service.hpp"
#include "runtime/chat/jinja/value.hpp"

#include <cstddef>
#include <stop_token>
#include <string>

namespace troupe {

/// The most that a chat may bring for its template: well below a body's limit, for templates may go over it many times.
/// Bytes of text, and a few for each value.
inline constexpr std::size_t most_message_bytes = 4 << 20; // and of `documents`
inline constexpr std::size_t most_tool_bytes = 1 << 20;
inline constexpr std::size_t most_variable_bytes = 64 << 10;
inline constexpr std::size_t most_messages = 16384;
inline constexpr std::size_t most_tools = 1024;

/// What the template is given, as the values that it works on.
struct chat_input {
  jinja::value messages;        // dicts; `content` is a string or null; `tool_calls[].function.arguments` a dict
  jinja::value tools = nullptr; // dicts, or none
  jinja::dict variables;        // chat_template_kwargs
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  std::stop_token stop; // nobody waits for the prompt any longer
};

/// Reads messages, tools, tool_choice, chat_template_kwargs, add_generation_prompt and continue_final_message. Throws
/// failure naming the field; what needs more than text (images, forced tool calls) is refused as unsupported.
chat_input read_chat(const field_reader& body);

/// The prompt. With continue_final_message it ends right after the last message's text. Throws failure(bad_request) on
/// `messages` where the model has no template or the template raises.
std::string render_chat(const served_model& model, const chat_input& chat);

} // namespace troupe
