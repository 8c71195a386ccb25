// The values of one chat that its template sees, checked and normalised.
#pragma once

#include "runtime/chat/jinja/value.hpp"

#include <stop_token>

namespace troupe {

struct chat_input {
  // Dicts; `content` is a string or null; `tool_calls[].function.arguments` a dict, or a text where a call was cut off.
  jinja::value messages;
  jinja::value tools = nullptr; // dicts, or none
  jinja::dict variables;        // chat_template_kwargs
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  bool continues_reasoning = false; // then the last message has reasoning and no content
  std::stop_token stop;             // cancels the rendering
};

} // namespace troupe
