// Reads the expressions of a template: what operators join. Base of the parser in parser.cpp, which reads the statements.
#pragma once

#include "runtime/chat/jinja/syntax/operand_parser.hpp"

#include <initializer_list>
#include <string_view>

namespace troupe::jinja {

class expression_parser : protected operand_parser {
protected:
  using operand_parser::operand_parser;

  expression_ptr expression_of() final;
  expression_ptr tuple(bool conditional = true, bool in_brackets = false) final;

private:
  // Loosest binding first.
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

  template <class Next>
  expression_ptr left_to_right(std::initializer_list<std::string_view> ops, Next next);
};

} // namespace troupe::jinja
