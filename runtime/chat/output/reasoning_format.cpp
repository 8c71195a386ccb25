#include "runtime/chat/output/reasoning_format.hpp"

#include "runtime/chat/output/text_search.hpp"

#include <algorithm>
#include <array>

namespace troupe {

namespace {

constexpr auto known_marks = std::to_array<reasoning_format>({
  {"think", "<think>", "</think>"}, // Qwen, DeepSeek, GLM, SmolLM, ...
  {"thinking", "<thinking>", "</thinking>"},
  {"mistral", "[THINK]", "[/THINK]"},
  {"seed", "<seed:think>", "</seed:think>"},
  {"kimi", "◁think▷", "◁/think▷"},
  {"gemma4", "<|channel>thought\n", "<channel|>"},
  {"granite", "Here is my thought process:", "Here is my response:"},
});

/// Whether `prompt` ends with `text` and white space.
bool ends_with(std::string_view prompt, std::string_view text) {
  while (!prompt.empty() && is_space(prompt.back()))
    prompt.remove_suffix(1);
  return prompt.ends_with(text);
}

} // namespace

bool reasoning_format::is_used_by(std::string_view chat_template) const {
  return chat_template.find(begin_) != chat_template.npos || chat_template.find(end_) != chat_template.npos;
}

bool reasoning_format::is_opened_by(std::string_view prompt) const { return ends_with(prompt, begin_); }
bool reasoning_format::is_closed_by(std::string_view prompt) const { return ends_with(prompt, end_); }

std::span<const reasoning_format> reasoning_formats() { return known_marks; }

const reasoning_format* find_reasoning_format(std::string_view name) {
  const auto found = std::ranges::find(known_marks, name, &reasoning_format::name);
  return found == known_marks.end() ? nullptr : &*found;
}

} // namespace troupe
