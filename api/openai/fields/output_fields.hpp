// Reads the fields that say what an answer has beside content: `tools`, `tool_choice`, `parallel_tool_calls`,
// `include_reasoning`. Pure; runs on worker threads.
#pragma once

#include "api/service/chat_input.hpp"
#include "api/service/served_model.hpp"
#include "runtime/chat/jinja/value.hpp"
#include "runtime/chat/output/chat_output.hpp"
#include "runtime/engine/generation.hpp"
#include "runtime/support/json/field_reader.hpp"

#include <memory>
#include <string_view>

namespace troupe {

/// The longest name of a function.
inline constexpr std::size_t most_tool_name_bytes = 128;
/// Entries of `tools`.
inline constexpr std::size_t most_tools = 1024;

/// Whether a function may have this name: letters, digits and _-.:/
bool is_tool_name(std::string_view name);

/// Throws failure unless `type` of a tool or of a choice is absent or "function".
void check_function_type(const field_reader& of);

/// What the fields ask for; with a named tool, only that one is in `tools`. Throws failure naming the field.
chat_output read_output(const field_reader& body, const served_model& model);

/// How many tokens of reasoning the request allows, if it says so: `thinking_token_budget`, or `thinking_budget` among
/// the template's variables; or where the template has no place for it, what `reasoning_effort` and `enable_thinking`
/// mean. `variables`: those of the template. -1: no bound.
int read_thinking_budget(const field_reader& body, const jinja::dict& variables, const served_model& model);

/// Completes `what` by the prompt, which may open or close the model's reasoning, and lets `to` follow it: sets the
/// constraint (over that of the content) and what is shown of special tokens. Returns null, and changes
/// nothing, if the answer's text is its content. `chat`: whether the answer goes on within a message of the prompt.
/// Throws failure as chat_output::constrain.
std::shared_ptr<const chat_output> follow_output(chat_output what, std::string_view prompt, const chat_input& chat,
                                                 const served_model& model, generation& to);

} // namespace troupe
