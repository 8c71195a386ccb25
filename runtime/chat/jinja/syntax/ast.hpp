// The syntax tree of a template: expressions and statements as plain data. Made by the parser, walked by the evaluator
// and the interpreter. Immutable, so that any number of threads may render one template.
#pragma once

#include "runtime/chat/jinja/context.hpp"
#include "runtime/chat/jinja/syntax/lexer.hpp"

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::jinja::ast {

struct expression;
using expression_ptr = std::unique_ptr<expression>; // null if left out

struct arguments {
  std::vector<expression_ptr> positional;
  std::vector<std::pair<std::string, expression_ptr>> keyword;
  expression_ptr unpacked_list, unpacked_dict; // *args, **kwargs
};

struct literal {
  value is;
};
struct name {
  std::string is;
};
struct list_literal {
  std::vector<expression_ptr> items;
};
struct tuple_literal {
  std::vector<expression_ptr> items;
};
struct dict_literal {
  std::vector<std::pair<expression_ptr, expression_ptr>> items;
};
struct attribute {
  expression_ptr object;
  std::string name;
};
struct item {
  expression_ptr object, key;
};
struct slice {
  expression_ptr object, start, stop, step;
};
struct call {
  expression_ptr callee;
  arguments given;
};
/// A null `find` is an unknown filter or test, an error only when it is reached. A null `input` is the captured block.
struct filter {
  expression_ptr input;
  std::string name;
  filter_function find;
  arguments given;
};
struct test {
  expression_ptr input;
  std::string name;
  test_function find;
  arguments given;
};
struct negation {
  expression_ptr of;
}; // not x
struct sign {
  char is;
  expression_ptr of;
};
struct binary {
  std::string op;
  expression_ptr left, right;
};
struct logical {
  bool conjunction;
  expression_ptr left, right;
};
struct comparison {
  expression_ptr first;
  std::vector<std::pair<std::string, expression_ptr>> rest;
};
struct concatenation {
  std::vector<expression_ptr> parts;
};
struct conditional {
  expression_ptr condition, then, otherwise;
};

struct expression {
  position at;
  unsigned depth = 1; // levels of nested expressions
  std::variant<literal, name, list_literal, tuple_literal, dict_literal, attribute, item, slice, call, filter, test,
               negation, sign, binary, logical, comparison, concatenation, conditional>
    is;
};

struct statement;
using block = std::vector<statement>;

struct parameter {
  std::string name;
  expression_ptr fallback;
};
struct macro_body {
  std::string name;
  std::vector<parameter> parameters;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
  block body;
};

struct data {
  std::string is;
};
struct print {
  expression_ptr of;
};
/// A target is a name, a tuple of targets, or an attribute of a name (a namespace).
struct assignment {
  expression_ptr target, to;
};
struct capture {
  expression_ptr target, through;
  block body;
}; // {% set x | filter %}...{% endset %}
struct loop {
  expression_ptr target, over, only_if;
  bool recursive;
  block body, otherwise;
};
struct branch {
  std::vector<std::pair<expression_ptr, block>> cases;
  block otherwise;
};
struct macro {
  macro_body is;
};
struct call_block {
  macro_body caller;
  expression_ptr call;
};
struct filter_block {
  expression_ptr through;
  block body;
};
struct with {
  std::vector<std::pair<expression_ptr, expression_ptr>> set;
  block body;
}; // and {% generation %}
struct jump {
  bool leave;
}; // break, or else continue

struct statement {
  position at;
  std::variant<data, print, assignment, capture, loop, branch, macro, call_block, filter_block, with, jump> is;
};

} // namespace troupe::jinja::ast
