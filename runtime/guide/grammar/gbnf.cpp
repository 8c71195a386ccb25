#include "runtime/guide/grammar/grammar_text.hpp"
#include "runtime/guide/grammar/rule_tree.hpp"
#include "runtime/guide/regex/code_points.hpp"
#include "runtime/guide/text_cursor.hpp"

namespace troupe::guides {

namespace {

class gbnf_parser {
public:
  gbnf_parser(grammar& g, std::string_view text) : tree_(g), at_(text, "the GBNF grammar") {}

  rule_id parse() {
    at_.skip_space("#", true);
    while (!at_.at_end()) {
      const auto name = at_.name();
      if (name.empty())
        at_.refuse("must have the name of a rule here");
      at_.skip_space("#", false);
      if (!at_.take("::="))
        at_.refuse("lacks `::=` behind `" + name + "`");
      at_.skip_space("#", true);
      tree_.define(name, choice(false));
      at_.skip_space("#", true);
    }
    return tree_.emit("root");
  }

private:
  using node = rule_tree::node_id;
  static constexpr int deepest = 200;

  node choice(bool nested) {
    if (++depth_ > deepest)
      at_.refuse("is nested deeper than " + std::to_string(deepest));
    std::vector<node> ways;
    do {
      at_.skip_space("#", true);
      ways.push_back(sequence(nested));
    } while (next_way());
    --depth_;
    return tree_.choice(std::move(ways));
  }

  /// Whether a `|` follows, maybe on the next line; takes it.
  bool next_way() {
    const auto begin = at_.position();
    at_.skip_space("#", true);
    if (at_.take("|"))
      return true;
    at_.go_to(begin);
    return false;
  }

  node sequence(bool nested) {
    std::vector<node> parts;
    for (;;) {
      at_.skip_space("#", nested);
      const char c = at_.peek();
      if (c == '"')
        parts.push_back(literal());
      else if (c == '[')
        parts.push_back(characters());
      else if (at_.take("."))
        parts.push_back(tree_.terminal(encoded(tree_.target().regex(), code_points::all(), text_encoding::utf8)));
      else if (at_.take("(")) {
        parts.push_back(choice(true));
        at_.skip_space("#", true);
        if (!at_.take(")"))
          at_.refuse("has an unmatched `(`");
      } else if (c == '<' || c == '!')
        at_.refuse("names a token by its id, which is not supported");
      else if (text_cursor::is_name(c))
        parts.push_back(tree_.reference(at_.name()));
      else if ((c == '*' || c == '+' || c == '?' || c == '{') && !parts.empty())
        repeat(parts.back());
      else if (at_.at_end() || c == '|' || c == ')' || c == '\n' || c == '\r')
        break;
      else
        at_.refuse_character();
    }
    return tree_.sequence(std::move(parts));
  }

  void repeat(node& part) {
    std::uint32_t least = 0, most = unlimited;
    if (at_.take("*")) {
    } else if (at_.take("+"))
      least = 1;
    else if (at_.take("?"))
      most = 1;
    else {
      at_.take("{");
      at_.skip_space("#", true);
      const auto low = at_.number();
      at_.skip_space("#", true);
      if (at_.take(",")) {
        at_.skip_space("#", true);
        least = low.value_or(0);
        most = at_.number().value_or(unlimited);
      } else if (low)
        least = most = *low;
      else
        at_.refuse("has a malformed repetition");
      at_.skip_space("#", true);
      if (!at_.take("}"))
        at_.refuse("has a malformed repetition");
    }
    part = tree_.repeat(part, least, most);
  }

  char32_t character() {
    if (at_.at_end() || at_.peek() == '\n')
      at_.refuse("has an end of line within quotes or brackets");
    return at_.take("\\") ? at_.escape() : at_.take_character();
  }

  node literal() {
    at_.take("\"");
    std::string text;
    while (!at_.take("\""))
      append_char(text, character());
    return tree_.terminal(tree_.target().regex().literal(text));
  }

  node characters() {
    at_.take("[");
    const bool inverted = at_.take("^");
    std::vector<code_points::range> ranges;
    while (!at_.take("]")) {
      const auto low = character();
      auto high = low;
      if (at_.peek() == '-' && at_.peek(1) != ']') {
        at_.take("-");
        high = character();
      }
      if (high < low)
        at_.refuse("has a range whose limits are out of order");
      ranges.push_back({low, high});
    }
    code_points set;
    set.add(std::move(ranges));
    return tree_.terminal(encoded(tree_.target().regex(), inverted ? set.complement() : set, text_encoding::utf8));
  }

  rule_tree tree_;
  text_cursor at_;
  int depth_ = 0;
};

} // namespace

rule_id add_gbnf(grammar& g, std::string_view text) { return gbnf_parser(g, text).parse(); }

rule_id add_grammar(grammar& g, std::string_view text) {
  return text.find("::=") != text.npos ? add_gbnf(g, text) : add_lark(g, text);
}

} // namespace troupe::guides
