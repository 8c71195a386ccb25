// A position in the tokens of a template, for the parser.
#pragma once

#include "runtime/chat/jinja/syntax/lexer.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace troupe::jinja {

class token_cursor {
public:
  using type = token::type;

  explicit token_cursor(std::string_view source) : tokens_(tokenize(source)) {}

  const token& here() const { return tokens_[next_]; }
  const token& ahead() const { return tokens_[next_ + 1 < tokens_.size() ? next_ + 1 : next_]; }
  const token& consume() { return tokens_[next_ + 1 < tokens_.size() ? next_++ : next_]; }
  bool at(type is) const { return here().is == is; }
  bool at(type is, std::string_view text) const { return at(is) && here().text == text; }
  bool at_op(std::string_view op) const { return at(type::op, op); }
  bool at_name(std::string_view name) const { return at(type::name, name); }

  /// Consume the token if it is the given one.
  bool skip(type is, std::string_view text);
  bool skip_op(std::string_view op) { return skip(type::op, op); }
  bool skip_name(std::string_view name) { return skip(type::name, name); }

  /// Consume the token, or refuse the template.
  void expect_op(std::string_view op);
  std::string expect_name();
  void expect(type is, const char* what);

  static std::string describe(const token& t);
  [[noreturn]] void expected(const std::string& what) const;

private:
  std::vector<token> tokens_; // ends with type::end, which is never consumed
  std::size_t next_ = 0;
};

} // namespace troupe::jinja
