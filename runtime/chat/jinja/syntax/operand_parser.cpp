#include "runtime/chat/jinja/syntax/operand_parser.hpp"

#include "runtime/support/text/ascii.hpp"

#include <algorithm>
#include <charconv>

namespace troupe::jinja {

namespace {

constexpr unsigned max_nesting = 64; // levels of the parser's own recursion

value integer(const token& t) {
  const bool prefixed = t.text.size() > 2 && !is_ascii_digit(t.text[1]);
  const char base = prefixed ? static_cast<char>(t.text[1] | 0x20) : 'd';
  const char* first = t.text.data() + (prefixed ? 2 : 0);
  std::int64_t result = 0;
  const auto read = std::from_chars(first, t.text.data() + t.text.size(), result,
                                    base == 'x'     ? 16
                                      : base == 'o' ? 8
                                      : base == 'b' ? 2
                                                    : 10);
  if (read.ec != std::errc{})
    refuse(t.at, "the integer " + t.text + " does not fit into 64 bits");
  return value(result);
}

double real(const token& t) {
  double result = 0;
  const auto read = std::from_chars(t.text.data(), t.text.data() + t.text.size(), result);
  if (read.ec != std::errc{})
    refuse(t.at, "the number " + t.text + " does not fit into a float");
  return result;
}

} // namespace

operand_parser::level::level(operand_parser& p) : parser_(p) {
  if (++parser_.nesting_ > max_nesting)
    refuse(parser_.here().at, "the template is nested deeper than " + std::to_string(max_nesting) + " levels");
}

std::optional<value> operand_parser::constant(std::string_view word) {
  if (word == "true" || word == "True")
    return value(true);
  if (word == "false" || word == "False")
    return value(false);
  if (word == "none" || word == "None")
    return value(nullptr);
  return std::nullopt;
}

ast::expression_ptr operand_parser::primary() {
  const auto& t = here();
  switch (t.is) {
    case type::name:
      consume();
      if (auto known = constant(t.text))
        return node<ast::literal>(t.at, *known);
      note_use(t.text);
      return node<ast::name>(t.at, t.text);
    case type::string: {
      std::string all;
      while (at(type::string))
        all += consume().text;
      return node<ast::literal>(t.at, value(std::move(all)));
    }
    case type::integer: consume(); return node<ast::literal>(t.at, integer(t));
    case type::real: consume(); return node<ast::literal>(t.at, value(real(t)));
    case type::op: {
      const level guard(*this);
      if (skip_op("(")) {
        auto result = tuple(true, true);
        expect_op(")");
        return result;
      }
      if (skip_op("["))
        return list_of(t.at);
      if (skip_op("{"))
        return dict_of(t.at);
      break;
    }
    default: break;
  }
  expected("an expression");
}

void operand_parser::note_use(const std::string& word) {
  for (auto* m : macros_) {
    m->uses_caller |= word == "caller";
    m->uses_varargs |= word == "varargs";
    m->uses_kwargs |= word == "kwargs";
  }
}

ast::expression_ptr operand_parser::list_of(position where) {
  std::vector<expression_ptr> items;
  while (!at_op("]")) {
    items.push_back(expression_of());
    if (!skip_op(","))
      break;
  }
  expect_op("]");
  return node<ast::list_literal>(where, std::move(items));
}

ast::expression_ptr operand_parser::dict_of(position where) {
  std::vector<std::pair<expression_ptr, expression_ptr>> items;
  while (!at_op("}")) {
    auto key = expression_of();
    expect_op(":");
    auto item = expression_of();
    items.emplace_back(std::move(key), std::move(item));
    if (!skip_op(","))
      break;
  }
  expect_op("}");
  return node<ast::dict_literal>(where, std::move(items));
}

ast::expression_ptr operand_parser::postfix(expression_ptr of) {
  for (;;) {
    const auto where = here().at;
    if (skip_op(".")) {
      if (at(type::integer)) {
        auto key = node<ast::literal>(here().at, integer(here()));
        consume();
        of = node<ast::item>(where, std::move(of), std::move(key));
      } else {
        of = node<ast::attribute>(where, std::move(of), expect_name());
      }
    } else if (skip_op("[")) {
      of = subscript(where, std::move(of));
    } else if (at_op("(")) {
      of = called(std::move(of));
    } else {
      return of;
    }
  }
}

ast::expression_ptr operand_parser::subscript(position where, expression_ptr of) {
  expression_ptr bounds[3];
  bool sliced = false;
  if (at_op("]"))
    expected("an index");
  for (std::size_t i = 0; i < 3; ++i) {
    if (!at_op(":") && !at_op("]"))
      bounds[i] = expression_of();
    if (i == 2 || !skip_op(":"))
      break;
    sliced = true;
  }
  if (!sliced && at_op(",")) {
    std::vector<expression_ptr> parts;
    parts.push_back(std::move(bounds[0]));
    while (skip_op(","))
      parts.push_back(expression_of());
    bounds[0] = node<ast::tuple_literal>(where, std::move(parts));
  }
  expect_op("]");
  if (!sliced)
    return node<ast::item>(where, std::move(of), std::move(bounds[0]));
  return node<ast::slice>(where, std::move(of), std::move(bounds[0]), std::move(bounds[1]), std::move(bounds[2]));
}

ast::expression_ptr operand_parser::called(expression_ptr callee) {
  const auto where = here().at;
  auto given = call_arguments_of();
  return node<ast::call>(where, std::move(callee), std::move(given));
}

ast::arguments operand_parser::call_arguments_of() {
  arguments result;
  const level guard(*this);
  expect_op("(");
  while (!at_op(")")) {
    const auto where = here().at;
    const bool unpacked = result.unpacked_list || result.unpacked_dict;
    if (skip_op("*")) {
      if (unpacked)
        refuse(where, "invalid order of arguments");
      result.unpacked_list = expression_of();
    } else if (skip_op("**")) {
      if (result.unpacked_dict)
        refuse(where, "invalid order of arguments");
      result.unpacked_dict = expression_of();
    } else if (at(type::name) && ahead().is == type::op && ahead().text == "=") {
      if (result.unpacked_dict)
        refuse(where, "invalid order of arguments");
      auto key = consume().text;
      consume();
      result.keyword.emplace_back(std::move(key), expression_of());
    } else {
      if (unpacked || !result.keyword.empty())
        refuse(where, "a positional argument follows a keyword argument");
      result.positional.push_back(expression_of());
    }
    if (!skip_op(","))
      break;
  }
  expect_op(")");
  return result;
}

ast::expression_ptr operand_parser::filters(expression_ptr of, bool named) {
  while (named || at_op("|")) {
    if (!named)
      consume();
    named = false;
    const auto where = here().at;
    auto word = dotted_name();
    auto given = at_op("(") ? call_arguments_of() : arguments{};
    const auto find = find_filter(word);
    if (!find)
      note_unknown("filter", word, where);
    of = node<ast::filter>(where, std::move(of), std::move(word), find, std::move(given));
  }
  return of;
}

std::string operand_parser::dotted_name() {
  auto word = expect_name();
  while (skip_op("."))
    word += '.' + expect_name();
  return word;
}

ast::expression_ptr operand_parser::tested(expression_ptr of) {
  consume();
  const bool negated = skip_name("not");
  const auto where = here().at;
  auto word = dotted_name();
  arguments given;
  if (at_op("(")) {
    given = call_arguments_of();
  } else if (at(type::string) || at(type::integer) || at(type::real) || at_op("[") || at_op("{") ||
             (at(type::name) && !at_name("else") && !at_name("or") && !at_name("and"))) {
    if (at_name("is"))
      refuse(here().at, "tests cannot be chained with 'is'");
    given.positional.push_back(postfix(primary()));
  }
  const auto find = find_test(word);
  if (!find)
    note_unknown("test", word, where);
  auto result = node<ast::test>(where, std::move(of), std::move(word), find, std::move(given));
  return negated ? node<ast::negation>(where, std::move(result)) : std::move(result);
}

void operand_parser::note_unknown(const char* what, const std::string& word, position where) {
  if (soft_ == 0)
    unknown_.emplace_back(where, "no " + std::string(what) + " named '" + word + "'");
}

void operand_parser::refuse_unknown() const {
  if (!unknown_.empty())
    refuse(unknown_.front().first, unknown_.front().second, errc::unsupported);
}

} // namespace troupe::jinja
