#include "runtime/chat/jinja/syntax/expression_parser.hpp"

#include "runtime/support/text/ascii.hpp"

#include <algorithm>
#include <charconv>

namespace troupe::jinja {

namespace {

constexpr unsigned max_nesting = 64;     // levels of the parser's own recursion
constexpr unsigned max_expression = 256; // levels of the tree: a chain of operators is as deep as it is long
constexpr std::string_view comparisons[] = {"==", "!=", "<", "<=", ">", ">="};

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

expression_parser::level::level(expression_parser& p) : parser_(p) {
  if (++parser_.nesting_ > max_nesting)
    refuse(parser_.here().at, "the template is nested deeper than " + std::to_string(max_nesting) + " levels");
}

// -- nodes --------------------------------------------------------------------

void expression_parser::check_depth(position at, unsigned below) {
  if (below >= max_expression)
    refuse(at, "an expression is nested deeper than " + std::to_string(max_expression) + " levels");
}

template <class Node, class Kind>
ast::expression_ptr expression_parser::join(position where, Kind kind, expression_ptr left, expression_ptr right) {
  const auto below = std::max(depth(left), depth(right));
  return make(where, Node{std::move(kind), std::move(left), std::move(right)}, below);
}

template <class Next>
ast::expression_ptr expression_parser::left_to_right(std::initializer_list<std::string_view> ops, Next next) {
  auto left = (this->*next)();
  while (at(type::op) && std::ranges::find(ops, here().text) != ops.end()) {
    const auto& op = consume();
    left = join<ast::binary>(op.at, op.text, std::move(left), (this->*next)());
  }
  return left;
}

unsigned expression_parser::depth(const std::vector<expression_ptr>& all) {
  unsigned deepest = 0;
  for (const auto& e : all)
    deepest = std::max(deepest, depth(e));
  return deepest;
}

unsigned expression_parser::depth(const arguments& a) {
  auto deepest = std::max({depth(a.positional), depth(a.unpacked_list), depth(a.unpacked_dict)});
  for (const auto& [key, e] : a.keyword)
    deepest = std::max(deepest, depth(e));
  return deepest;
}

// -- expressions --------------------------------------------------------------

std::optional<value> expression_parser::constant(std::string_view word) {
  if (word == "true" || word == "True")
    return value(true);
  if (word == "false" || word == "False")
    return value(false);
  if (word == "none" || word == "None")
    return value(nullptr);
  return std::nullopt;
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
  const auto below = depth(parts);
  return make(where, ast::tuple_literal{std::move(parts)}, below);
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
    const auto below = std::max({depth(result), depth(condition), depth(otherwise)});
    result = make(where, ast::conditional{std::move(condition), std::move(result), std::move(otherwise)}, below);
  }
  return result;
}

ast::expression_ptr expression_parser::disjunction() {
  auto left = conjunction();
  while (at_name("or")) {
    const auto where = consume().at;
    left = join<ast::logical>(where, false, std::move(left), conjunction());
  }
  return left;
}

ast::expression_ptr expression_parser::conjunction() {
  auto left = inversion();
  while (at_name("and")) {
    const auto where = consume().at;
    left = join<ast::logical>(where, true, std::move(left), inversion());
  }
  return left;
}

ast::expression_ptr expression_parser::inversion() {
  if (!at_name("not"))
    return compare();
  const level guard(*this);
  const auto where = consume().at;
  auto of = inversion();
  const auto below = depth(of);
  return make(where, ast::negation{std::move(of)}, below);
}

ast::expression_ptr expression_parser::compare() {
  const auto where = here().at;
  auto first = sum();
  std::vector<std::pair<std::string, expression_ptr>> rest;
  auto below = depth(first);
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
    below = std::max(below, depth(rest.back().second));
  }
  return rest.empty() ? std::move(first) : make(where, ast::comparison{std::move(first), std::move(rest)}, below);
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
  const auto below = depth(parts);
  return make(where, ast::concatenation{std::move(parts)}, below);
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
    const auto below = depth(of);
    result = make(op.at, ast::sign{op.text[0], std::move(of)}, below);
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

ast::expression_ptr expression_parser::primary() {
  const auto& t = here();
  switch (t.is) {
    case type::name:
      consume();
      if (auto known = constant(t.text))
        return make(t.at, ast::literal{*known}, 0);
      note_use(t.text);
      return make(t.at, ast::name{t.text}, 0);
    case type::string: {
      std::string all;
      while (at(type::string))
        all += consume().text;
      return make(t.at, ast::literal{value(std::move(all))}, 0);
    }
    case type::integer: consume(); return make(t.at, ast::literal{integer(t)}, 0);
    case type::real: consume(); return make(t.at, ast::literal{value(real(t))}, 0);
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

void expression_parser::note_use(const std::string& word) {
  for (auto* m : macros_) {
    m->uses_caller |= word == "caller";
    m->uses_varargs |= word == "varargs";
    m->uses_kwargs |= word == "kwargs";
  }
}

ast::expression_ptr expression_parser::list_of(position where) {
  std::vector<expression_ptr> items;
  while (!at_op("]")) {
    items.push_back(expression_of());
    if (!skip_op(","))
      break;
  }
  expect_op("]");
  const auto below = depth(items);
  return make(where, ast::list_literal{std::move(items)}, below);
}

ast::expression_ptr expression_parser::dict_of(position where) {
  ast::dict_literal result;
  unsigned below = 0;
  while (!at_op("}")) {
    auto key = expression_of();
    expect_op(":");
    auto item = expression_of();
    below = std::max({below, depth(key), depth(item)});
    result.items.emplace_back(std::move(key), std::move(item));
    if (!skip_op(","))
      break;
  }
  expect_op("}");
  return make(where, std::move(result), below);
}

ast::expression_ptr expression_parser::postfix(expression_ptr of) {
  for (;;) {
    const auto where = here().at;
    const auto below = depth(of);
    if (skip_op(".")) {
      if (at(type::integer)) {
        auto key = make(here().at, ast::literal{integer(here())}, 0);
        consume();
        of = make(where, ast::item{std::move(of), std::move(key)}, below);
      } else {
        of = make(where, ast::attribute{std::move(of), expect_name()}, below);
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

ast::expression_ptr expression_parser::subscript(position where, expression_ptr of) {
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
    const auto below = depth(parts);
    bounds[0] = make(where, ast::tuple_literal{std::move(parts)}, below);
  }
  expect_op("]");
  const auto below = std::max({depth(of), depth(bounds[0]), depth(bounds[1]), depth(bounds[2])});
  if (!sliced)
    return make(where, ast::item{std::move(of), std::move(bounds[0])}, below);
  return make(where, ast::slice{std::move(of), std::move(bounds[0]), std::move(bounds[1]), std::move(bounds[2])},
              below);
}

ast::expression_ptr expression_parser::called(expression_ptr callee) {
  const auto where = here().at;
  auto given = call_arguments_of();
  const auto below = std::max(depth(callee), depth(given));
  return make(where, ast::call{std::move(callee), std::move(given)}, below);
}

ast::arguments expression_parser::call_arguments_of() {
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

ast::expression_ptr expression_parser::filters(expression_ptr of, bool named) {
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
    const auto below = std::max(depth(of), depth(given));
    of = make(where, ast::filter{std::move(of), std::move(word), find, std::move(given)}, below);
  }
  return of;
}

std::string expression_parser::dotted_name() {
  auto word = expect_name();
  while (skip_op("."))
    word += '.' + expect_name();
  return word;
}

ast::expression_ptr expression_parser::tested(expression_ptr of) {
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
  const auto below = std::max(depth(of), depth(given));
  auto result = make(where, ast::test{std::move(of), std::move(word), find, std::move(given)}, below);
  return negated ? make(where, ast::negation{std::move(result)}, below + 1) : std::move(result);
}

void expression_parser::note_unknown(const char* what, const std::string& word, position where) {
  if (soft_ == 0)
    unknown_.emplace_back(where, "no " + std::string(what) + " named '" + word + "'");
}

void expression_parser::refuse_unknown() const {
  if (!unknown_.empty())
    refuse(unknown_.front().first, unknown_.front().second, errc::unsupported);
}

ast::expression_ptr expression_parser::target(bool attributes) {
  const auto where = here().at;
  std::vector<expression_ptr> parts;
  do
    parts.push_back(one_target(attributes));
  while (skip_op(","));
  if (parts.size() == 1)
    return std::move(parts.front());
  const auto below = depth(parts);
  return make(where, ast::tuple_literal{std::move(parts)}, below);
}

ast::expression_ptr expression_parser::one_target(bool attributes) {
  const level guard(*this);
  const auto where = here().at;
  if (skip_op("(")) {
    std::vector<expression_ptr> parts;
    bool is_tuple = at_op(")");
    while (!at_op(")")) {
      parts.push_back(one_target(attributes));
      if (!skip_op(","))
        break;
      is_tuple = true;
    }
    expect_op(")");
    const auto below = depth(parts);
    return is_tuple ? make(where, ast::tuple_literal{std::move(parts)}, below) : std::move(parts.front());
  }
  const auto word = expect_name();
  if (constant(word))
    refuse(where, "cannot assign to '" + word + "'");
  auto result = make(where, ast::name{word}, 0);
  if (attributes && skip_op("."))
    return make(where, ast::attribute{std::move(result), expect_name()}, 1);
  if (word == "loop" && loops_ != 0)
    refuse(where, "cannot assign to 'loop' inside of a loop");
  return result;
}

} // namespace troupe::jinja
