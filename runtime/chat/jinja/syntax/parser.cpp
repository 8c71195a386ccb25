#include "runtime/chat/jinja/syntax/parser.hpp"

#include "runtime/chat/jinja/syntax/expression_parser.hpp"

#include <algorithm>

namespace troupe::jinja {

namespace {

using namespace ast;

class parser final : expression_parser {
public:
  explicit parser(std::string_view source) : expression_parser(source) {}

  block run() {
    auto result = statements({});
    if (!at(type::end))
      refuse(here().at, "unexpected " + describe(here()));
    return result;
  }

private:
  /// Reads up to a tag of `ends`, which stays the next token, or to the end of the template if `ends` is empty.
  block statements(std::initializer_list<std::string_view> ends) {
    const level guard(*this);
    block result;
    for (;;) {
      const auto where = here().at;
      if (at(type::end)) {
        if (ends.size() != 0)
          refuse(where, "the template ends where " + tags(ends) + " was expected");
        return result;
      }
      if (at(type::data)) {
        result.push_back({where, data{consume().text}});
      } else if (at(type::variable_begin)) {
        consume();
        result.push_back({where, print{tuple()}});
        expect(type::variable_end, "'}}'");
      } else {
        expect(type::block_begin, "a tag");
        if (at(type::name) && std::ranges::find(ends, here().text) != ends.end())
          return result;
        statement_of(result, where, ends);
        expect(type::block_end, "'%}'");
      }
      refuse_unknown();
    }
  }

  static std::string tags(std::initializer_list<std::string_view> names) {
    std::string out;
    for (auto name : names)
      out += (out.empty() ? "'" : " or '") + std::string(name) + "'";
    return out;
  }

  /// The body of a tag, up to a tag of `ends`, whose name stays the next token.
  block body(std::initializer_list<std::string_view> ends) {
    skip_op(":");
    expect(type::block_end, "'%}'");
    return statements(ends);
  }

  block last_body(std::string_view end) {
    auto result = body({end});
    consume();
    return result;
  }

  void statement_of(block& out, position where, std::initializer_list<std::string_view> ends) {
    const auto tag = expect_name();
    if (tag == "for")
      out.push_back({where, for_loop()});
    else if (tag == "if")
      out.push_back({where, if_chain()});
    else if (tag == "set")
      set(out, where);
    else if (tag == "macro")
      out.push_back({where, macro{macro_named(expect_name(), "endmacro")}});
    else if (tag == "call")
      out.push_back({where, call_with_block(where)});
    else if (tag == "filter")
      out.push_back({where, filtered()});
    else if (tag == "with")
      out.push_back({where, with_values()});
    else if (tag == "generation")
      out.push_back({where, with{{}, function_body("endgeneration")}});
    else if (tag == "print")
      print_all(out, where);
    else if (tag == "break" || tag == "continue")
      out.push_back({where, jump_of(tag, where)});
    else
      unknown(tag, where, ends);
  }

  [[noreturn]] static void unknown(const std::string& tag, position where,
                                   std::initializer_list<std::string_view> ends) {
    for (auto other : {"extends", "block", "include", "import", "from", "autoescape"})
      if (tag == other)
        refuse(where, "the tag '" + tag + "' is not supported in chat templates", errc::unsupported);
    refuse(where, "unknown tag '" + tag + '\'' + (ends.size() ? ", expected " + tags(ends) : ""));
  }

  loop for_loop() {
    ++loops_;
    auto to = target(false);
    --loops_;
    if (!skip_name("in"))
      expected("'in'");
    auto over = tuple(false);
    expression_ptr only_if = skip_name("if") ? expression_of() : nullptr;
    const bool recursive = skip_name("recursive");
    ++loops_;
    auto inside = body({"endfor", "else"});
    --loops_;
    block otherwise;
    if (consume().text == "else")
      otherwise = last_body("endfor");
    return {std::move(to), std::move(over), std::move(only_if), recursive, std::move(inside), std::move(otherwise)};
  }

  branch if_chain() {
    branch result;
    ++soft_;
    for (;;) {
      auto condition = tuple(false);
      auto then = body({"elif", "else", "endif"});
      result.cases.emplace_back(std::move(condition), std::move(then));
      const auto end = consume().text;
      if (end == "else")
        result.otherwise = last_body("endif");
      if (end != "elif")
        break;
    }
    --soft_;
    return result;
  }

  void set(block& out, position where) {
    auto to = target(true);
    if (skip_op("=")) {
      out.push_back({where, assignment{std::move(to), tuple()}});
      return;
    }
    auto through = filters(nullptr);
    auto inside = last_body("endset");
    out.push_back({where, capture{std::move(to), std::move(through), std::move(inside)}});
  }

  /// An assignment target: a name, a tuple of targets or, with `attributes`, an attribute of a namespace.
  expression_ptr target(bool attributes) {
    const auto where = here().at;
    std::vector<expression_ptr> parts;
    do
      parts.push_back(one_target(attributes));
    while (skip_op(","));
    if (parts.size() == 1)
      return std::move(parts.front());
    return node<ast::tuple_literal>(where, std::move(parts));
  }

  expression_ptr one_target(bool attributes) {
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
      return is_tuple ? node<ast::tuple_literal>(where, std::move(parts)) : std::move(parts.front());
    }
    const auto word = expect_name();
    if (constant(word))
      refuse(where, "cannot assign to '" + word + "'");
    auto result = node<ast::name>(where, word);
    if (attributes && skip_op("."))
      return node<ast::attribute>(where, std::move(result), expect_name());
    if (word == "loop" && loops_ != 0)
      refuse(where, "cannot assign to 'loop' inside of a loop");
    return result;
  }

  /// A body that is a function in jinja2, so that `break` cannot leave it.
  block function_body(std::string_view end) {
    const auto outer = std::exchange(loops_, 0);
    auto result = last_body(end);
    loops_ = outer;
    return result;
  }

  macro_body macro_named(std::string name, std::string_view end) {
    macro_body result;
    result.name = std::move(name);
    macros_.push_back(&result);
    if (result.name.empty() ? at_op("(") : true)
      signature(result.parameters);
    if (end == "endcall")
      pending_call_ = expression_of();
    result.body = function_body(end);
    macros_.pop_back();
    return result;
  }

  void signature(std::vector<parameter>& out) {
    expect_op("(");
    while (!at_op(")")) {
      if (!out.empty())
        expect_op(",");
      const auto where = here().at;
      parameter p{expect_name(), nullptr};
      if (skip_op("="))
        p.fallback = expression_of();
      else if (!out.empty() && out.back().fallback)
        refuse(where, "a parameter without a default follows one that has one");
      out.push_back(std::move(p));
    }
    expect_op(")");
  }

  call_block call_with_block(position where) {
    auto caller = macro_named({}, "endcall");
    if (!std::holds_alternative<call>(pending_call_->is))
      refuse(where, "a call block needs a call");
    return {std::move(caller), std::move(pending_call_)};
  }

  filter_block filtered() {
    auto through = filters(nullptr, true);
    return {std::move(through), last_body("endfilter")};
  }

  with with_values() {
    with result;
    while (!at(type::block_end)) {
      if (!result.set.empty())
        expect_op(",");
      auto to = target(false);
      expect_op("=");
      result.set.emplace_back(std::move(to), expression_of());
    }
    result.body = last_body("endwith");
    return result;
  }

  void print_all(block& out, position where) {
    for (bool first = true; !at(type::block_end); first = false) {
      if (!first)
        expect_op(",");
      out.push_back({where, print{expression_of()}});
    }
  }

  jump jump_of(const std::string& tag, position where) const {
    if (loops_ == 0)
      refuse(where, '\'' + tag + "' outside of a loop");
    return {tag == "break"};
  }

  expression_ptr pending_call_;
};

} // namespace

ast::block parse(std::string_view source) { return parser(source).run(); }

} // namespace troupe::jinja
