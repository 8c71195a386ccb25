// How models mark their reasoning: the texts that begin and end it. Immutable.
#pragma once

#include <span>
#include <string_view>

namespace troupe {

class reasoning_format {
public:
  constexpr reasoning_format(std::string_view name, std::string_view begin, std::string_view end)
    : name_(name), begin_(begin), end_(end) {}

  /// Its name for --reasoning-parser.
  std::string_view name() const { return name_; }
  std::string_view begin() const { return begin_; }
  std::string_view end() const { return end_; }

  /// Whether a model with this chat template marks its reasoning so.
  bool is_used_by(std::string_view chat_template) const;
  /// Whether a prompt ends within reasoning, or right behind it.
  bool is_opened_by(std::string_view prompt) const;
  bool is_closed_by(std::string_view prompt) const;

private:
  std::string_view name_, begin_, end_;
};

std::span<const reasoning_format> reasoning_formats();
/// Null if there is none of this name.
const reasoning_format* find_reasoning_format(std::string_view name);

} // namespace troupe
