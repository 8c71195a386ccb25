// Reads the expressions of a template. Base of the parser in parser.cpp, which reads the statements.
#pragma once

#include "runtime/chat/jinja/syntax/ast.hpp"
#include "runtime/chat/jinja/syntax/token_cursor.hpp"

namespace troupe::jinja {

class expression_parser : protected token_cursor {
protected:
  using expression_ptr = ast::expression_ptr;
  using arguments = ast::arguments;

  using token_cursor::token_cursor;

  /// Counts a level of the parser's own recursion (brackets in brackets, blocks in blocks) during its lifetime.
  class level {
  public:
    explicit level(expression_parser& p);
    ~level() { --parser_.nesting_; }
    level(const level&) = delete;

  private:
    expression_parser& parser_;
  };

  // -- expressions, loosest binding first -------------------------------------

  /// An expression, or a tuple if commas follow. `conditional` allows `a if b`.
  expression_ptr tuple(bool conditional = true, bool in_brackets = false);
  expression_ptr expression_of();
  expression_ptr disjunction();
  expression_ptr conjunction();
  expression_ptr inversion();
  expression_ptr compare();
  expression_ptr sum();
  expression_ptr concatenated();
  expression_ptr product();
  expression_ptr power();
  expression_ptr filtered_unary();
  expression_ptr unary(bool with_filters);
  expression_ptr primary();
  expression_ptr list_of(position where);
  expression_ptr dict_of(position where);
  expression_ptr postfix(expression_ptr of);
  expression_ptr subscript(position where, expression_ptr of);
  expression_ptr called(expression_ptr callee);
  expression_ptr tested(expression_ptr of);
  /// `| a | b(c)` applied to `of`. With `named`, the first filter comes without its bar.
  expression_ptr filters(expression_ptr of, bool named = false);
  arguments call_arguments_of();
  std::string dotted_name();

  /// An assignment target: a name, a tuple of targets or, with `attributes`, an attribute of a namespace.
  expression_ptr target(bool attributes);
  expression_ptr one_target(bool attributes);

  /// The value of `true`, `none` and the like.
  static std::optional<value> constant(std::string_view word);

  // -- nodes ------------------------------------------------------------------

  template <class Node>
  expression_ptr make(position at, Node node, unsigned below) {
    check_depth(at, below);
    return std::make_unique<ast::expression>(ast::expression{at, below + 1, std::move(node)});
  }
  template <class Node, class Kind>
  expression_ptr join(position where, Kind kind, expression_ptr left, expression_ptr right);
  template <class Next>
  expression_ptr left_to_right(std::initializer_list<std::string_view> ops, Next next);

  static void check_depth(position at, unsigned below);
  static unsigned depth(const expression_ptr& e) { return e ? e->depth : 0; }
  static unsigned depth(const std::vector<expression_ptr>& all);
  static unsigned depth(const arguments& a);

  // -- state of the parse -----------------------------------------------------

  /// A macro accepts extra arguments only if its body mentions `varargs`, `kwargs` or `caller`.
  void note_use(const std::string& word);
  /// An unknown filter or test is refused at the end of its statement, except in a branch that may never be reached:
  /// there jinja2 refuses it during rendering, and only if it is reached.
  void note_unknown(const char* what, const std::string& word, position where);
  void refuse_unknown() const;

  unsigned nesting_ = 0;
  unsigned loops_ = 0; // enclosing loops, up to the next macro
  unsigned soft_ = 0;  // enclosing branches
  std::vector<std::pair<position, std::string>> unknown_;
  std::vector<ast::macro_body*> macros_; // enclosing macros
};

} // namespace troupe::jinja
