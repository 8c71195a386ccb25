#include "runtime/chat/output/output_filter.hpp"

#include "runtime/support/text/utf8.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

namespace {

/// The value of a hexadecimal digit. The result for another character does not matter, because no reader accepts it.
unsigned nibble(char c) {
  if (c >= '0' && c <= '9')
    return static_cast<unsigned>(c - '0');
  const auto letter = static_cast<unsigned>((c | 0x20) - 'a');
  return letter < 6 ? letter + 10 : 0;
}

char unescaped(char c) {
  switch (c) {
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    default: return c; // a quote, a backslash, a slash
  }
}

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

} // namespace

std::string_view json_unescaping::take(char c) {
  if (digits_ >= 0)
    return digit(c);
  if (std::exchange(escaped_, false)) {
    if (c == 'u') {
      digits_ = 0;
      value_ = 0;
      return {};
    }
    const char plain = unescaped(c);
    return give({&plain, 1});
  }
  if (c == '\\') {
    escaped_ = true;
    return {};
  }
  return give({&c, 1});
}

std::string_view json_unescaping::digit(char c) {
  value_ = value_ << 4 | nibble(c);
  if (++digits_ < 4)
    return {};
  digits_ = -1;
  const auto half = static_cast<char32_t>(value_);
  if (surrogate_ != 0 && half >= 0xDC00 && half < 0xE000)
    return give(0x10000 + ((std::exchange(surrogate_, 0) - 0xD800) << 10) + (half - 0xDC00));
  if (half >= 0xD800 && half < 0xDC00) {
    const bool lonely = std::exchange(surrogate_, half) != 0;
    return lonely ? replacement_character : std::string_view();
  }
  return give(half >= 0xDC00 && half < 0xE000 ? U'\uFFFD' : half);
}

std::string_view json_unescaping::give(std::string_view text) {
  if (std::exchange(surrogate_, 0) == 0) {
    std::ranges::copy(text, out_);
    return {out_, text.size()};
  }
  const auto end = std::ranges::copy(replacement_character, out_).out;
  return {out_, std::ranges::copy(text, end).out};
}

std::string_view json_unescaping::give(char32_t c) {
  std::string text;
  append_char(text, c);
  return give(std::string_view(text));
}

output_filter::output_filter(std::shared_ptr<const banned_texts> banned, bool json_content, std::function<void()> tell)
  : banned_(std::move(banned)), tell_(std::move(tell)), json_content_(json_content) {}

bool output_filter::take(channel& at, char c, bool json) const {
  const auto follow = [this](state& from, std::string_view bytes) {
    const auto next = banned_->advance(from, bytes);
    from = next.value_or(0);
    return next.has_value();
  };
  return follow(at.as_sent, {&c, 1}) && (!json || follow(at.as_read, at.json.take(c)));
}

void output_filter::apply(output_deltas& deltas) {
  if (!banned_)
    return;
  if (closed_)
    return deltas.clear();
  for (auto delta = deltas.begin(); delta != deltas.end(); ++delta) {
    using kind = output_delta::kind;
    if (delta->what == kind::call_begin) { // the name is one of the client's own
      arguments_ = {};
      continue;
    }
    auto& at = delta->what == kind::content ? content_ : delta->what == kind::reasoning ? reasoning_ : arguments_;
    const bool json = delta->what == kind::call_arguments || (delta->what == kind::content && json_content_);
    auto& text = delta->text;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (take(at, text[i], json))
        continue;
      while (i > 0 && continues_character(text[i]))
        --i;
      text.resize(i);
      deltas.erase(text.empty() ? delta : delta + 1, deltas.end());
      closed_ = true;
      if (tell_)
        tell_();
      return;
    }
  }
}

} // namespace troupe
