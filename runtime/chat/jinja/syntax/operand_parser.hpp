// Reads the operands of a template's expressions: literals, names, brackets, and what follows them (attributes, indices,
// calls, filters, tests). Base of expression_parser, which reads what operators join, also within brackets.
#pragma once

#include "runtime/chat/jinja/syntax/nodes.hpp"
#include "runtime/chat/jinja/syntax/token_cursor.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::jinja {

class operand_parser : protected token_cursor {
protected:
  using expression_ptr = ast::expression_ptr;
  using arguments = ast::arguments;

  using token_cursor::token_cursor;
  ~operand_parser() = default;

  /// Counts a level of the parser's own recursion (brackets in brackets, blocks in blocks) during its lifetime.
  class level {
  public:
    explicit level(operand_parser& p);
    ~level() { --parser_.nesting_; }
    level(const level&) = delete;

  private:
    operand_parser& parser_;
  };

  virtual expression_ptr expression_of() = 0;
  /// An expression, or a tuple if commas follow. `conditional` allows `a if b`.
  virtual expression_ptr tuple(bool conditional = true, bool in_brackets = false) = 0;

  expression_ptr primary();
  expression_ptr postfix(expression_ptr of);
  expression_ptr called(expression_ptr callee);
  expression_ptr tested(expression_ptr of);
  /// `| a | b(c)` applied to `of`. With `named`, the first filter comes without its bar.
  expression_ptr filters(expression_ptr of, bool named = false);

  /// The value of `true`, `none` and the like.
  static std::optional<value> constant(std::string_view word);

  void refuse_unknown() const;

  unsigned loops_ = 0; // enclosing loops, up to the next macro
  unsigned soft_ = 0;  // enclosing branches
  std::vector<std::pair<position, std::string>> unknown_;
  std::vector<ast::macro_body*> macros_; // enclosing macros

private:
  expression_ptr list_of(position where);
  expression_ptr dict_of(position where);
  expression_ptr subscript(position where, expression_ptr of);
  arguments call_arguments_of();
  std::string dotted_name();

  /// A macro accepts extra arguments only if its body mentions `varargs`, `kwargs` or `caller`.
  void note_use(const std::string& word);
  /// An unknown filter or test is refused at the end of its statement, except in a branch that may never be reached:
  /// there jinja2 refuses it during rendering, and only if it is reached.
  void note_unknown(const char* what, const std::string& word, position where);

  unsigned nesting_ = 0;
};

} // namespace troupe::jinja
