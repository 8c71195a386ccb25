// Renders a chat's prompt so that it has every text of the messages. Templates refuse some turns that clients send, and
// silently drop others; then messages are moved (message_moves.hpp) until the model sees all of them. The result
// depends on the template and the conversation alone. Any thread.
//
// A special token that a message, a tool or a document writes out is text, and ends no turn: a template's own tokens and
// these are told apart by a mark ahead of the latter, which templates pass on with the text.
#pragma once

#include "runtime/chat/message_moves.hpp"

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

struct whole_prompt {
  std::string text;
  std::vector<std::string> notes;         // what was moved, or is left out nevertheless: sentences, few and short
  std::vector<std::size_t> plain_at = {}; // where texts write special tokens out: tokenizer::encode_around
};

/// As tokenizer::specials_in.
using specials_finder = std::function<std::vector<std::string_view>(std::string_view)>;

/// The marks of one prompt.
class plain_marks {
public:
  /// `specials`: null if none are known, and nothing is marked.
  explicit plain_marks(specials_finder specials) : specials_(std::move(specials)) {}

  /// The value with a mark ahead of each special token in its texts and names, at any depth. The tokens around reasoning
  /// in what an assistant said, which templates look for, stay as they are. Throws failure(bad_request) for a role with a
  /// special token.
  jinja::value on(const jinja::value& of);
  /// The text without marks. `plain_at`: gets where tokens follow them; a template may have cut these off.
  std::string without(std::string_view text, std::vector<std::size_t>& plain_at) const;

private:
  std::optional<jinja::value> marked(const jinja::value& of, bool said); // nothing if there is no special token
  std::optional<std::string> marked_text(const std::string& text, bool said);
  bool is_marked(std::string_view text) const; // whether it begins with a token that was

  specials_finder specials_;
  std::string mark_;                          // made with the first special token
  std::set<std::string, std::less<>> tokens_; // that have marks
};

/// `render` gives a template's prompt of messages, a list of dicts, and throws failure(bad_request) where the template
/// refuses them. Where nothing is left out it is called once. Reasoning of earlier turns is the template's to leave
/// out. Throws the first failure of `render` if the template refuses all shapes. `marks` are put on the messages, and
/// taken from the prompt. `continues`: not on the last message, with which the answer begins, token by token.
whole_prompt render_whole(const jinja::value& messages, const std::function<std::string(const jinja::value&)>& render,
                          plain_marks marks, bool continues = false);

/// What is said of tools that `prompt` does not show, if there are any. `tools` is a list of dicts, or none; `render`
/// gives the same prompt with other tools, and is called only where the prompt lacks a name or a description.
std::optional<std::string> note_on_tools(const jinja::value& tools, std::string_view prompt,
                                         const std::function<std::string(const jinja::value&)>& render);

} // namespace troupe
