#include "runtime/chat/jinja/syntax/expression_parser.hpp"

#include <algorithm>

namespace troupe::jinja {

namespace {

constexpr std::string_view comparisons[] = {"==", "!=", "<", "<=", ">", ">="};

} // namespace

template <class Next>
ast::expression_ptr expression_parser::left_to_right(std::initializer_list<std::string_view> ops, Next next) {
  auto left = (this->*next)();
  while (at(type::op) && std::ranges::find(ops, here().text) != ops.end()) {
    const auto& op = consume();
    left = node<ast::binary>(op.at, op.text, std::move(left), (this->*next)());
  }
  return left;
}

ast::expression_ptr expression_parser::tuple(bool conditional, bool in_brackets) {
  const auto where = here().at;
  std::vector<expression_ptr> parts;
  bool is_tuple = false;
  while (!(at(type::variable_end) || at(type::block_end) || at_op(")"))) {
    parts.push_back(conditional ? expression_of() : disjunction());
    if (!skip_op(","))
      break;
    is_tuple = true;
  }
  if (!is_tuple && !parts.empty())
    return std::move(parts.front());
  if (!is_tuple && !in_brackets)
    expected("an expression");
  return node<ast::tuple_literal>(where, std::move(parts));
}

ast::expression_ptr expression_parser::expression_of() {
  const level guard(*this);
  const auto where = here().at;
  const auto known = unknown_.size();
  auto result = disjunction();
  while (at_name("if")) {
    consume();
    unknown_.resize(known, {});
    ++soft_;
    auto condition = disjunction();
    expression_ptr otherwise = skip_name("else") ? expression_of() : nullptr;
    --soft_;
    result = node<ast::conditional>(where, std::move(condition), std::move(result), std::move(otherwise));
  }
  return result;
}

ast::expression_ptr expression_parser::disjunction() {
  auto left = conjunction();
  while (at_name("or")) {
    const auto where = consume().at;
    left = node<ast::logical>(where, false, std::move(left), conjunction());
  }
  return left;
}

ast::expression_ptr expression_parser::conjunction() {
  auto left = inversion();
  while (at_name("and")) {
    const auto where = consume().at;
    left = node<ast::logical>(where, true, std::move(left), inversion());
  }
  return left;
}

ast::expression_ptr expression_parser::inversion() {
  if (!at_name("not"))
    return compare();
  const level guard(*this);
  const auto where = consume().at;
  auto of = inversion();
  return node<ast::negation>(where, std::move(of));
}

ast::expression_ptr expression_parser::compare() {
  const auto where = here().at;
  auto first = sum();
  std::vector<std::pair<std::string, expression_ptr>> rest;
  for (;;) {
    std::string op;
    if (at(type::op) && std::ranges::find(comparisons, here().text) != std::end(comparisons))
      op = consume().text;
    else if (skip_name("in"))
      op = "in";
    else if (at_name("not") && ahead().is == type::name && ahead().text == "in")
      consume(), consume(), op = "not in";
    else
      break;
    rest.emplace_back(op, sum());
  }
  return rest.empty() ? std::move(first) : node<ast::comparison>(where, std::move(first), std::move(rest));
}

ast::expression_ptr expression_parser::sum() { return left_to_right({"+", "-"}, &expression_parser::concatenated); }

ast::expression_ptr expression_parser::concatenated() {
  const auto where = here().at;
  std::vector<expression_ptr> parts;
  do
    parts.push_back(product());
  while (skip_op("~"));
  if (parts.size() == 1)
    return std::move(parts.front());
  return node<ast::concatenation>(where, std::move(parts));
}

ast::expression_ptr expression_parser::product() {
  return left_to_right({"*", "/", "//", "%"}, &expression_parser::power);
}

ast::expression_ptr expression_parser::power() { return left_to_right({"**"}, &expression_parser::filtered_unary); }

ast::expression_ptr expression_parser::filtered_unary() { return unary(true); }

ast::expression_ptr expression_parser::unary(bool with_filters) {
  expression_ptr result;
  if (at_op("-") || at_op("+")) {
    const level guard(*this);
    const auto& op = consume();
    auto of = unary(false);
    result = node<ast::sign>(op.at, op.text[0], std::move(of));
  } else {
    result = primary();
  }
  result = postfix(std::move(result));
  while (with_filters) {
    if (at_op("|"))
      result = filters(std::move(result));
    else if (at_name("is"))
      result = tested(std::move(result));
    else if (at_op("("))
      result = called(std::move(result));
    else
      break;
  }
  return result;
}

} // namespace troupe::jinja
