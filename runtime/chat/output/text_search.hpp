// Finds and matches texts in a stream of bytes. Plain values.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

inline bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

inline std::string_view without_space(std::string_view text) {
  while (!text.empty() && is_space(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && is_space(text.back()))
    text.remove_suffix(1);
  return text;
}

/// Finds the first of several texts. None may be a prefix of another.
class text_search {
public:
  explicit text_search(std::vector<std::string_view> texts) : texts_(std::move(texts)) {}

  /// The text that `c` completes, or an empty one. Calls `pass` with the bytes that are known to belong to none.
  template <class F>
  std::string_view take(char c, F pass) {
    held_ += c;
    while (!held_.empty()) {
      bool begins = false;
      for (const auto text : texts_)
        if (text.starts_with(held_)) {
          if (text.size() == held_.size()) {
            held_.clear();
            return text;
          }
          begins = true;
        }
      if (begins)
        break;
      pass(held_.front());
      held_.erase(0, 1);
    }
    return {};
  }
  /// What may be the beginning of a text.
  std::string release() { return std::exchange(held_, {}); }

private:
  std::vector<std::string_view> texts_;
  std::string held_;
};

/// Matches one of several texts at once, behind white space. None may be a prefix of another, or begin with a space.
class expected_text {
public:
  explicit expected_text(std::vector<std::string_view> texts = {}) : texts_(std::move(texts)) {}

  enum class match { more, none, found };
  match take(char c) {
    if (seen_.empty() && is_space(c))
      return match::more;
    seen_ += c;
    for (const auto text : texts_)
      if (text.starts_with(seen_))
        return text.size() == seen_.size() ? match::found : match::more;
    return match::none;
  }
  /// What was found.
  const std::string& found() const { return seen_; }

private:
  std::vector<std::string_view> texts_;
  std::string seen_;
};

} // namespace troupe
