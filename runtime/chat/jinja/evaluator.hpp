// Evaluates the expressions of a template in the current scope. The interpreter builds on it to run statements.
#pragma once

#include "runtime/chat/jinja/scope.hpp"
#include "runtime/chat/jinja/syntax/ast.hpp"

namespace troupe::jinja {

class evaluator : public context {
protected:
  using context::context;

  static constexpr std::size_t step_cost = 64; // of an expression or statement, in the bytes that spend() counts

  /// Counts a level of recursion during its lifetime. Throws fault when the template calls itself too deeply.
  class level {
  public:
    explicit level(evaluator& in);
    ~level() { --in_.depth_; }
    level(const level&) = delete;

  private:
    evaluator& in_;
  };

  value eval(const ast::expression& e);
  /// Undefined for an expression that was left out.
  value eval(const ast::expression_ptr& e) { return e ? eval(*e) : value(); }
  std::vector<value> eval(const std::vector<ast::expression_ptr>& all);

  /// The filter `f` applied to `input` instead of its own input.
  value filtered(const ast::filter& f, value input);
  /// The filter chain of a block applied to the block's output; the innermost filter has no input of its own.
  value filtered(const ast::expression& chain, value printed);

  /// `caller` is the body of a call block.
  value call(const ast::call& c, position at, const value* caller);

  scope_ptr scope_;
  position at_; // for the error message

private:
  value on(const ast::literal& l, position) { return l.is; }
  value on(const ast::name& n, position);
  value on(const ast::list_literal& l, position) { return list(eval(l.items)); }
  value on(const ast::tuple_literal& t, position) { return list(eval(t.items), shape::tuple); }
  value on(const ast::dict_literal& d, position at);
  value on(const ast::attribute& a, position at);
  value on(const ast::item& i, position at);
  value on(const ast::slice& s, position at);
  value on(const ast::call& c, position at) { return call(c, at, nullptr); }
  value on(const ast::filter& f, position) { return filtered(f, eval(*f.input)); }
  value on(const ast::test& t, position at);
  value on(const ast::negation& n, position) { return value(!eval(*n.of).truth()); }
  value on(const ast::sign& s, position at);
  value on(const ast::binary& b, position at);
  value on(const ast::logical& l, position);
  value on(const ast::comparison& c, position at);
  value on(const ast::concatenation& c, position at);
  value on(const ast::conditional& c, position at);

  bool holds(const std::string& op, const value& a, const value& b);
  call_arguments arguments(const ast::arguments& given);

  unsigned depth_ = 0;
};

} // namespace troupe::jinja
