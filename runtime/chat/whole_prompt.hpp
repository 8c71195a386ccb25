// Renders a chat's prompt so that it has every text of the messages. Templates refuse some turns that clients send, and
// silently drop others; then messages are moved (message_moves.hpp) until the model sees all of them. The result
// depends on the template and the conversation alone. Any thread.
//
// A special token that a user or a tool writes out is text, and ends no turn: a template's own tokens and these are told
// apart by a mark ahead of the latter, which templates pass on with the text.
#pragma once

#include "runtime/chat/message_moves.hpp"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

struct whole_prompt {
  std::string text;
  std::vector<std::string> notes;         // what was moved, or is left out nevertheless: sentences, few and short
  std::vector<std::size_t> plain_at = {}; // where users and tools write special tokens out: tokenizer::encode_around
};

/// As tokenizer::specials_in.
using specials_finder = std::function<std::vector<std::size_t>(std::string_view)>;

/// `render` gives a template's prompt of messages, a list of dicts, and throws failure(bad_request) where the template
/// refuses them. Where nothing is left out it is called once. Reasoning of earlier turns is the template's to leave
/// out. Throws the first failure of `render` if the template refuses all shapes. `specials`: null if none are known.
whole_prompt render_whole(const jinja::value& messages, const std::function<std::string(const jinja::value&)>& render,
                          const specials_finder& specials);

/// What is said of tools that `prompt` does not show, if there are any. `tools` is a list of dicts, or none; `render`
/// gives the same prompt with other tools, and is called only where the prompt lacks a name or a description.
std::optional<std::string> note_on_tools(const jinja::value& tools, std::string_view prompt,
                                         const std::function<std::string(const jinja::value&)>& render);

} // namespace troupe
