// Checks the `messages` and `tools` of a chat and turns them straight into template values. Pure functions, used on
// worker threads.
#pragma once

#include "api/openai/fields/output_fields.hpp"
#include "api/service/chat_input.hpp"
#include "api/service/served_model.hpp"
#include "runtime/chat/whole_prompt.hpp"
#include "runtime/support/json/field_reader.hpp"

#include <cstddef>
#include <stop_token>
#include <string>
#include <string_view>

namespace troupe {

/// Limits of a template's input, in bytes of text plus a few per value. Well below the limit of bodies, because
/// templates may pass over their input many times.
inline constexpr std::size_t most_message_bytes = 4 << 20; // and of `documents`
inline constexpr std::size_t most_tool_bytes = 1 << 20;
inline constexpr std::size_t most_variable_bytes = 64 << 10;
inline constexpr std::size_t most_messages = 16384;

/// The member `arguments` of a function: an object, or JSON of one in a text, as OpenAI's clients send it. A text that
/// is something else (of a call that was cut off) stays a text. Throws failure naming it.
jinja::value open_arguments(const field_reader& function, json::value given);

/// Why a part of a message that is no text is refused: what it would need.
std::string why_text_only(std::string_view type);

/// Reads messages, tools, chat_template_kwargs, reasoning_effort, thinking, verbosity, add_generation_prompt and
/// continue_final_message; with `tool_choice` "none" the template sees no tools. Throws failure naming the field. Images are refused as
/// unsupported.
chat_input read_chat(const field_reader& body);

/// The prompt, which has the texts of all messages. With continue_final_message it ends right after the last message's
/// text; of one that was cut within its reasoning, after that. Throws failure(bad_request) on `messages` if the model has
/// no template or the template refuses them in every shape.
whole_prompt render_chat(const served_model& model, const chat_input& chat);

} // namespace troupe
