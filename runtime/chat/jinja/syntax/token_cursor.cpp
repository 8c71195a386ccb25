#include "runtime/chat/jinja/syntax/token_cursor.hpp"

namespace troupe::jinja {

bool token_cursor::skip(type is, std::string_view text) {
  const bool found = at(is, text);
  if (found)
    consume();
  return found;
}

void token_cursor::expected(const std::string& what) const {
  refuse(here().at, "expected " + what + ", found " + describe(here()));
}

std::string token_cursor::describe(const token& t) {
  switch (t.is) {
    case type::end: return "end of the template";
    case type::block_end: return "'%}'";
    case type::variable_end: return "'}}'";
    case type::data: return "text";
    case type::string: return "a string";
    default: return '\'' + t.text + "'";
  }
}

void token_cursor::expect_op(std::string_view op) {
  if (!skip_op(op))
    expected('\'' + std::string(op) + "'");
}

std::string token_cursor::expect_name() {
  if (!at(type::name))
    expected("a name");
  return consume().text;
}

void token_cursor::expect(type is, const char* what) {
  if (!at(is))
    expected(what);
  consume();
}

} // namespace troupe::jinja
