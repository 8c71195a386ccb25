#include "api/cli/terminal/word_wrap.hpp"

#include "runtime/support/text/utf8.hpp"

#include <algorithm>
#include <clocale>
#include <utility>

#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

namespace troupe::cli {

namespace {

constexpr std::size_t tab = 8, narrowest = 10;

/// wchar_t is UTF-32 here in every locale.
std::size_t width_of(char32_t c) { return static_cast<std::size_t>(std::max(0, ::wcwidth(static_cast<wchar_t>(c)))); }

} // namespace

void use_utf8_locale() {
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1)
    std::setlocale(LC_CTYPE, "C.UTF-8");
}

std::size_t columns_of(int descriptor) {
  winsize size = {};
  return isatty(descriptor) && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

void word_wrap::end_word(std::string& out, std::size_t columns) {
  if (word_.empty())
    return;
  if (!began_ && column_ > 0 && column_ + spaces_width_ + word_width_ > columns) {
    out += '\n';
    column_ = 0;
  } else {
    if (column_ == 0 && word_width_ <= columns && spaces_width_ + word_width_ > columns) {
      spaces_width_ = columns - word_width_; // less of a deep indentation
      spaces_.assign(spaces_width_, ' ');
    }
    out += spaces_;
    column_ += spaces_width_;
  }
  spaces_.clear();
  out += word_;
  column_ += word_width_;
  if (column_ > columns) // the terminal has broken the word
    column_ = (column_ - 1) % columns + 1;
  word_.clear();
  spaces_width_ = word_width_ = 0;
  began_ = true;
}

bool word_wrap::joins(char32_t c, std::size_t width) {
  constexpr char32_t zero_width_joiner = 0x200d;
  const bool letter_of_flag = c >= 0x1f1e6 && c <= 0x1f1ff, tone_of_skin = c >= 0x1f3fb && c <= 0x1f3ff;
  const bool second = letter_of_flag && half_flag_;
  half_flag_ = letter_of_flag && !half_flag_;
  return std::exchange(joiner_, c == zero_width_joiner) || width == 0 || tone_of_skin || second;
}

std::string word_wrap::add(std::string_view text, std::size_t columns) {
  columns = std::max(columns, narrowest);
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const auto begin = at;
    const auto c = next_char(text, at);
    const auto bytes = text.substr(begin, at - begin);
    if (c == '\n') {
      end_word(out, columns);
      spaces_.clear();
      spaces_width_ = column_ = 0;
      began_ = false;
      out += '\n';
    } else if (c == ' ' || c == '\t') {
      end_word(out, columns);
      began_ = false;
      spaces_ += bytes;
      spaces_width_ += c == ' ' ? 1 : tab - (column_ + spaces_width_) % tab;
    } else {
      const auto width = width_of(c);
      if (joins(c, width)) {
        if (word_.empty() && spaces_.empty()) { // the character is on the screen already
          out += bytes;
          column_ += width;
        } else {
          word_ += bytes;
          word_width_ += width;
        }
        continue;
      }
      if (width > 1) { // a line may be broken before and after a wide character, such as a Chinese one
        end_word(out, columns);
        began_ = false;
      } else if (word_width_ + width > columns) {
        end_word(out, columns);
      }
      word_ += bytes;
      word_width_ += width;
      if (width > 1) {
        end_word(out, columns);
        began_ = false;
      }
    }
  }
  return out;
}

std::string word_wrap::finish(std::size_t columns) {
  std::string out;
  end_word(out, std::max(columns, narrowest));
  *this = {};
  return out;
}

std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent) {
  std::string result;
  columns = std::max(columns, indent + narrowest);
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    word_wrap lines;
    auto paragraph = lines.add(text.substr(0, end), columns - indent);
    paragraph += lines.finish(columns - indent);
    for (const char c : paragraph)
      (result += c).append(c == '\n' ? indent : 0, ' ');
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!text.empty())
      result += '\n';
  }
  return result;
}

} // namespace troupe::cli
