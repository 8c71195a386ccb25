#include "runtime/chat/output/formats/plain_value.hpp"

#include "runtime/chat/output/chat_output_parser.hpp"
#include "runtime/chat/output/formats/python_literal.hpp"
#include "runtime/chat/output/text_search.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/support/text/utf8.hpp"

namespace troupe {

namespace {

bool is_whole_json(std::string_view text) {
  json_scanner scanner;
  for (std::size_t i = 0; i < text.size(); ++i)
    switch (scanner.take(text[i])) {
      case json_scanner::status::more: break;
      case json_scanner::status::done: return i + 1 == text.size();
      default: return false;
    }
  return scanner.can_end();
}

/// Whether a text begins a word that templates print for null and booleans: Python's words.
bool begins_word(std::string_view text, parameter_kind kind) {
  const auto begins = [&](std::string_view word) { return word.starts_with(text); };
  return kind.known && ((kind.null && begins("None")) || (kind.boolean && (begins("True") || begins("False"))));
}

} // namespace

void plain_value::become_string() {
  as_ = as::string;
  out_ += '"';
  append_json_escaped(out_, text_);
  text_.clear();
}

/// Notices that `text_`, whose last byte is `c`, can only be a string.
void plain_value::look(char c) {
  const auto text = without_space(text_);
  if (text.empty())
    return;
  using scan = json_scanner::status;
  if (text.size() == 1 && !is_space(c) && !kind_.admits(c))
    no_json_ = true;
  else if (complete_)
    no_json_ = no_json_ || !is_space(c);
  else if (!no_json_)
    switch (scanner_.take(c)) {
      case scan::more: break;
      case scan::done: complete_ = true; break;
      case scan::ended: complete_ = is_space(c); [[fallthrough]];
      default: no_json_ = !complete_;
    }
  if (no_json_ && !begins_word(text, kind_))
    become_string();
}

void plain_value::take(char c) {
  switch (as_) {
    case as::string: append_json_escaped(out_, {&c, 1}); return;
    case as::json: out_ += c; return;
    case as::undecided: break;
  }
  if (kind_.is_string_only()) {
    become_string();
    return take(c);
  }
  text_ += c;
  if (text_.size() > chat_output_parser::most_held) { // what it begins with must do
    const char first = without_space(text_).empty() ? ' ' : without_space(text_).front();
    if (first != '[' && first != '{')
      return become_string();
    as_ = as::json;
    out_ += text_;
    text_.clear();
    return;
  }
  if (kind_.admits_string())
    look(c);
}

void plain_value::finish() {
  if (as_ == as::string)
    out_ += '"';
  else if (as_ == as::undecided)
    out_ += plain_value_json(text_, kind_);
}

void plain_value::cut() {
  if (as_ == as::undecided && (!text_.empty() || kind_.is_string_only()))
    become_string();
}

std::string plain_value_json(std::string_view text, parameter_kind kind) {
  const auto inner = without_space(text);
  if (!kind.is_string_only() && !inner.empty()) {
    // A quoted string where none is admitted is passed on: it says more than its text.
    if (is_whole_json(inner) && (kind.admits(inner.front()) || !kind.admits_string()))
      return std::string(inner);
    if (kind.known)
      if (const auto json = python_literal(inner); json && kind.admits(json->front()) && json->front() != '"')
        return *json;
  }
  return json_text(to_utf8(text));
}

} // namespace troupe
