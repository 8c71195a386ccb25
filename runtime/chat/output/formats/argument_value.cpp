#include "runtime/chat/output/formats/argument_value.hpp"

#include "runtime/chat/output/call_search.hpp"
#include "runtime/chat/output/chat_output_parser.hpp"
#include "runtime/chat/output/formats/python_literal.hpp"
#include "runtime/chat/output/text_search.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/support/text/utf8.hpp"

#include <algorithm>

namespace troupe {

namespace {

constexpr std::size_t most_spaces = 256;
constexpr char marked_string = '\1'; // instead of its quote

std::string_view behind_space(std::string_view text) {
  while (!text.empty() && is_space(text.front()))
    text.remove_prefix(1);
  return text;
}

std::string_view between_space(std::string_view text) {
  text = behind_space(text);
  while (!text.empty() && is_space(text.back()))
    text.remove_suffix(1);
  return text;
}

bool is_quote(char c) { return c == '"' || c == '\''; }

} // namespace

std::string bare_key(std::string_view key, std::string_view quote) {
  key = between_space(key);
  if (!quote.empty() && key.size() >= 2 * quote.size() && key.starts_with(quote) && key.ends_with(quote))
    return std::string(key.substr(quote.size(), key.size() - 2 * quote.size()));
  if (key.size() >= 2 && is_quote(key.front()) && key.back() == key.front())
    return std::string(key.substr(1, key.size() - 2));
  return std::string(key);
}

bool argument_value::may_be_mark_at(std::size_t at) const {
  return !ends_.quote.empty() && ends_.quote.starts_with(std::string_view(text_).substr(at));
}

/// Whether a value may end in front of `rest`: of the call's end and what follows it, or of another argument.
argument_value::fit argument_value::ends_with(std::string_view rest) const {
  const auto at = behind_space(rest);
  if (rest.size() - at.size() > most_spaces)
    return fit::none;
  if (at.empty())
    return fit::more;
  const auto next = behind_space(at.substr(1));
  if (at.size() - next.size() > most_spaces)
    return fit::none;
  if (at.front() == ends_.close)
    return behind_call(next);
  if (at.front() != ',')
    return fit::none;
  if (next.empty())
    return fit::more;
  if (next.front() == ends_.close) // a comma behind the last one
    return ends_with(next);
  std::size_t length = 0;
  while (length < next.size() && !is_space(next[length]) &&
         std::string_view("()[]{},=:").find(next[length]) == std::string_view::npos)
    ++length;
  const auto assign = behind_space(next.substr(length));
  if (length == 0 || length > most_name_bytes || next.size() - length - assign.size() > most_spaces)
    return fit::none;
  return assign.empty() ? fit::more : assign.front() == ends_.assign ? fit::whole : fit::none;
}

/// What may stand behind a call: the end of the list of calls, a mark, or another call.
argument_value::fit argument_value::behind_call(std::string_view next) const {
  if (next.empty())
    return fit::more;
  if (next.front() == ']' || next.front() == '<')
    return fit::whole;
  if (next.front() != ',' || ends_.close != ')')
    return fit::none;
  next = behind_space(next.substr(1));
  const auto length = std::min(next.find_first_of(" \n\t()[]{},=:'\""), next.size());
  if (length == next.size())
    return length > most_name_bytes ? fit::none : fit::more;
  return length > 0 && next[length] == '(' ? fit::whole : fit::none;
}

bool argument_value::take(char c) {
  if (as_ == as::start && text_.empty() && is_space(c))
    return false;
  text_ += c;
  if (as_ == as::start && !start())
    return false;
  while (behind_ > 0 || find_end()) {
    switch (ends_with(std::string_view(text_).substr(behind_))) {
      case fit::more: return false;
      case fit::whole: end(); return true;
      case fit::none: reject_end();
    }
  }
  return false;
}

/// What kind of value it is. False if that is not known yet.
bool argument_value::start() {
  if (may_be_mark_at(0) && text_.size() < ends_.quote.size())
    return false;
  if (is_mark_at(0)) {
    as_ = as::marked;
    text_.clear();
    out_ += '"';
    return false;
  }
  if (is_quote(text_.front())) {
    if (text_.size() < 2 || (text_[1] == text_[0] && text_.size() < 3))
      return false;
    as_ = as::quoted;
    delimiter_ = text_[1] == text_[0] && text_[2] == text_[0] ? 3 : 1;
    scan_ = delimiter_;
  } else if (std::string_view("[{(").find(text_.front()) != std::string_view::npos) {
    as_ = as::container;
  } else {
    as_ = as::bare;
  }
  return true;
}

/// The next place where the value may end.
bool argument_value::find_end() {
  switch (as_) {
    case as::marked: return find_mark();
    case as::quoted: return find_quote();
    case as::container: return find_bracket();
    case as::bare: return find_comma();
    default: return false;
  }
}

bool argument_value::find_mark() {
  const auto at = text_.find(ends_.quote.front(), scan_);
  const auto sure = std::min(at, text_.size());
  append_json_escaped(out_, std::string_view(text_).substr(0, sure));
  text_.erase(0, sure);
  scan_ = 0;
  if (text_.empty() || (may_be_mark_at(0) && text_.size() < ends_.quote.size()))
    return false;
  if (!is_mark_at(0)) {
    scan_ = 1; // it is text
    return find_mark();
  }
  end_ = 0;
  behind_ = ends_.quote.size();
  return true;
}

bool argument_value::find_quote() {
  const char quote = text_.front();
  while (scan_ < text_.size()) {
    if (text_[scan_] == '\\') {
      if (scan_ + 1 == text_.size())
        return false;
      scan_ += 2;
      continue;
    }
    std::size_t quotes = 0;
    while (quotes < delimiter_ && scan_ + quotes < text_.size() && text_[scan_ + quotes] == quote)
      ++quotes;
    if (quotes == delimiter_) {
      end_ = scan_;
      behind_ = scan_ + delimiter_;
      return true;
    }
    if (scan_ + quotes == text_.size())
      return false;
    ++scan_;
  }
  return false;
}

/// The bracket that closes the first one.
bool argument_value::find_bracket() {
  const auto closes = [this](std::size_t behind) { // whether a string ends here; nothing: that is not known yet
    const auto next = behind_space(std::string_view(text_).substr(behind));
    return next.empty()                                           ? fit::more
      : std::string_view(",]}):").find(next.front()) != next.npos ? fit::whole
                                                                  : fit::none;
  };
  while (scan_ < text_.size()) {
    const char c = text_[scan_];
    const bool mark = is_mark_at(scan_);
    if (!mark && may_be_mark_at(scan_))
      return false;
    const std::size_t length = mark ? ends_.quote.size() : 1;
    if (string_ != 0) {
      if (string_ != marked_string && c == '\\') {
        if (scan_ + 1 == text_.size())
          return false;
        scan_ += 2;
        continue;
      }
      if (mark ? string_ == marked_string : c == string_) {
        const auto how = closes(scan_ + length);
        if (how == fit::more)
          return false;
        if (how == fit::whole)
          string_ = 0;
      }
    } else if (mark) {
      string_ = marked_string;
    } else if (is_quote(c)) {
      const auto before = between_space(std::string_view(text_).substr(0, scan_));
      if (!before.empty() && std::string_view("[{(,:").find(before.back()) != before.npos)
        string_ = c;
    } else if (c == '[' || c == '{' || c == '(') {
      ++depth_;
    } else if ((c == ']' || c == '}' || c == ')') && --depth_ == 0) {
      end_ = behind_ = ++scan_;
      return true;
    }
    scan_ += length;
  }
  return false;
}

bool argument_value::find_comma() {
  for (; scan_ < text_.size(); ++scan_) {
    if (text_[scan_] == ',' || text_[scan_] == ends_.close) {
      end_ = behind_ = scan_;
      if (behind_ == 0) { // there is no value
        text_.insert(0, 1, ' ');
        ++end_, ++behind_, ++scan_;
      }
      return true;
    }
    if (is_mark_at(scan_)) {
      end_ = scan_;
      behind_ = scan_ + ends_.quote.size();
      lacks_mark_ = true;
      return true;
    }
    if (may_be_mark_at(scan_))
      return false;
  }
  return false;
}

/// It is within the value.
void argument_value::reject_end() {
  switch (as_) {
    case as::marked: // models write it for a quote, too
      text_.replace(0, ends_.quote.size(), "\"");
      scan_ = 1;
      break;
    case as::container: as_ = as::bare; break; // it goes on
    default: scan_ = end_ + 1;
  }
  behind_ = 0;
  lacks_mark_ = false;
}

void argument_value::end() {
  rest_ = behind_space(std::string_view(text_).substr(behind_));
  const auto text = std::string_view(text_).substr(0, end_);
  switch (as_) {
    case as::marked: out_ += '"'; break;
    case as::quoted: out_ += json_text(to_utf8(python_string(text.substr(delimiter_)))); break;
    default: {
      const auto inner = between_space(text);
      const auto json = lacks_mark_ ? std::nullopt : python_literal(inner, ends_.quote);
      const bool is_text = !json || (json->front() != '"' && kind_.admits_string() && !kind_.admits(json->front()));
      out_ += is_text ? json_text(to_utf8(inner)) : *json;
    }
  }
  as_ = as::done;
}

void argument_value::finish() {
  if (as_ == as::done)
    return;
  if (behind_ > 0)
    return end();
  std::string_view text = text_;
  if (as_ == as::marked) {
    append_json_escaped(out_, text);
  } else {
    if (!text.empty() && is_quote(text.front()))
      text.remove_prefix(1);
    out_ += json_text(to_utf8(text));
    out_.pop_back(); // the quote
  }
  as_ = as::done;
}

bool argument_value::too_long() const { return text_.size() > chat_output_parser::most_held; }

} // namespace troupe
