#include "runtime/guide/grammar/grammar_text.hpp"
#include "runtime/guide/grammar/rule_tree.hpp"
#include "runtime/guide/regex/code_points.hpp"
#include "runtime/guide/regex/pattern.hpp"
#include "runtime/guide/schema/schema_grammar.hpp"
#include "runtime/guide/text_cursor.hpp"
#include "runtime/support/json/json.hpp"

#include <array>
#include <utility>

namespace troupe::guides {

namespace {

/// Lark's own grammar `common`, of which `%import common.NAME` takes terminals.
constexpr std::array<std::pair<std::string_view, std::string_view>, 23> common{{
  {"DIGIT", "[0-9]"},
  {"HEXDIGIT", "[0-9a-fA-F]"},
  {"INT", "[0-9]+"},
  {"SIGNED_INT", "[+-]?[0-9]+"},
  {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
  {"FLOAT", "[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
  {"SIGNED_FLOAT", "[+-]?(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
  {"NUMBER", "[0-9]+(?:\\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\\.[0-9]+(?:[eE][+-]?[0-9]+)?"},
  {"SIGNED_NUMBER", "[+-]?(?:[0-9]+(?:\\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\\.[0-9]+(?:[eE][+-]?[0-9]+)?)"},
  {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\.)*\""},
  {"LCASE_LETTER", "[a-z]"},
  {"UCASE_LETTER", "[A-Z]"},
  {"LETTER", "[a-zA-Z]"},
  {"WORD", "[a-zA-Z]+"},
  {"CNAME", "[_a-zA-Z][_a-zA-Z0-9]*"},
  {"WS_INLINE", "[ \\t]+"},
  {"WS", "[ \\t\\f\\r\\n]+"},
  {"CR", "\\r"},
  {"LF", "\\n"},
  {"NEWLINE", "(?:\\r?\\n)+"},
  {"SH_COMMENT", "#[^\\n]*"},
  {"CPP_COMMENT", "//[^\\n]*"},
  {"SQL_COMMENT", "--[^\\n]*"},
}};

class lark_parser {
public:
  lark_parser(grammar& g, std::string_view text) : g_(g), tree_(g), at_(text, "the Lark grammar") {}

  rule_id parse() {
    for (at_.skip_space("//", true); !at_.at_end(); at_.skip_space("//", true))
      statement();
    if (!tree_.defined("start"))
      at_.refuse("does not define `start`");
    // Ignored terminals may stand before every terminal of a rule, and at the end.
    std::vector<node> ways;
    for (const auto& name : ignored_)
      ways.push_back(tree_.reference(name));
    tree_.define(ignored, ways.empty() ? tree_.terminal(empty_text) : tree_.repeat(tree_.choice(ways), 0, unlimited));
    tree_.define(whole, tree_.sequence({tree_.reference("start"), tree_.reference(ignored)}));
    for (const auto& name : terminals_)
      tree_.regular(name);
    return tree_.emit(whole);
  }

private:
  using node = rule_tree::node_id;
  static constexpr int deepest = 200;
  static constexpr auto ignored = "%ignored", whole = "%whole"; // not names of Lark

  static bool is_terminal(const std::string& name) {
    const auto first = name.find_first_not_of('_');
    return first != name.npos && name[first] >= 'A' && name[first] <= 'Z';
  }

  void statement() {
    if (at_.take("%ignore")) {
      at_.skip_space("//", false);
      const auto name = "%ignore" + std::to_string(ignored_.size());
      in_terminal_ = true;
      tree_.define(name, choice());
      terminals_.push_back(name);
      ignored_.push_back(name);
    } else if (at_.take("%import")) {
      at_.skip_space("//", false);
      import();
    } else if (at_.take("%llguidance")) { // settings of its engine
      at_.skip_space("//", false);
      json_value();
    } else if (at_.peek() == '%')
      at_.refuse("has a directive that is not supported");
    else {
      if (at_.peek() == '?' || at_.peek() == '!') // about trees
        at_.take_character();
      const auto name = at_.name();
      if (name.empty())
        at_.refuse("must have the name of a rule or terminal here");
      if (at_.peek() == '{')
        at_.refuse("has a template, which is not supported");
      if (at_.take("["))
        attributes();
      if (at_.take(".")) // a priority: all readings are allowed here
        at_.number();
      at_.skip_space("//", false);
      if (!at_.take(":"))
        at_.refuse("lacks `:` behind `" + name + "`");
      in_terminal_ = is_terminal(name);
      if (in_terminal_)
        terminals_.push_back(name);
      tree_.define(name, choice());
    }
    at_.skip_space("//", false);
    if (!at_.at_end() && at_.peek() != '\n' && at_.peek() != '\r')
      at_.refuse_character();
  }

  /// Reads a rule's attributes, as llguidance has them. What is captured matters to those who parse the answer.
  void attributes() {
    do {
      at_.skip_space("//", true);
      const auto name = at_.name();
      if (name != "capture")
        at_.refuse("has an attribute of a rule that is not supported: `" + name + "`");
      at_.skip_space("//", true);
      if (at_.take("=")) {
        at_.skip_space("//", true);
        if (at_.peek() != '"')
          at_.refuse("has a malformed attribute");
        quoted();
        at_.skip_space("//", true);
      }
    } while (at_.take(","));
    if (!at_.take("]"))
      at_.refuse("has a malformed attribute");
  }

  void import() {
    if (!at_.take("common."))
      at_.refuse("imports from another grammar than `common`");
    const auto name = at_.name();
    auto local = name;
    at_.skip_space("//", false);
    if (at_.take("->")) {
      at_.skip_space("//", false);
      local = at_.name();
    }
    for (const auto& [known, pattern] : common)
      if (known == name) {
        tree_.define(local, tree_.terminal(whole_pattern(g_.regex(), pattern)));
        return;
      }
    at_.refuse("imports `" + name + "`, which `common` does not have");
  }

  node choice() {
    if (++depth_ > deepest)
      at_.refuse("is nested deeper than " + std::to_string(deepest));
    std::vector<node> ways;
    do
      ways.push_back(sequence());
    while (next_way());
    --depth_;
    return tree_.choice(std::move(ways));
  }

  bool next_way() {
    const auto begin = at_.position();
    at_.skip_space("//", true);
    if (at_.take("|"))
      return true;
    at_.go_to(begin);
    return false;
  }

  node sequence() {
    std::vector<node> parts;
    for (;;) {
      at_.skip_space("//", depth_ > 1);
      if (at_.take("->")) { // the name of a tree
        at_.skip_space("//", false);
        at_.name();
        continue;
      }
      if (auto part = atom())
        parts.push_back(repeated(*part));
      else
        return tree_.sequence(std::move(parts));
    }
  }

  std::optional<node> atom() {
    const char c = at_.peek();
    if (at_.take("(")) {
      const auto inner = choice();
      at_.skip_space("//", true);
      if (!at_.take(")"))
        at_.refuse("has an unmatched `(`");
      return inner;
    }
    if (at_.take("[")) {
      const auto inner = choice();
      at_.skip_space("//", true);
      if (!at_.take("]"))
        at_.refuse("has an unmatched `[`");
      return tree_.repeat(inner, 0, 1);
    }
    if (c == '"')
      return text();
    if (c == '/')
      return pattern();
    if (at_.take("%json")) {
      at_.skip_space("//", true);
      return with_ignored(tree_.call(add_schema(g_, json_value(), {}, g_.limits())));
    }
    if (c == '<' || c == '%' || c == '@' || c == '~' || c == '&')
      at_.refuse("has a special token, an operator or a directive that is not supported: `" + std::string(1, c) + "`");
    if (!text_cursor::is_name(c) || c == '-')
      return {};
    const auto name = at_.name();
    const auto reference = tree_.reference(name);
    return is_terminal(name) ? with_ignored(reference) : reference;
  }

  node repeated(node part) {
    for (;;) {
      if (at_.take("*"))
        part = tree_.repeat(part, 0, unlimited);
      else if (at_.take("+"))
        part = tree_.repeat(part, 1, unlimited);
      else if (at_.take("?"))
        part = tree_.repeat(part, 0, 1);
      else if (at_.take("~")) {
        at_.skip_space("//", false);
        const auto least = at_.number();
        if (!least)
          at_.refuse("has a malformed repetition");
        auto most = *least;
        if (at_.take("..")) {
          const auto high = at_.number();
          if (!high)
            at_.refuse("has a malformed repetition");
          most = *high;
        }
        part = tree_.repeat(part, *least, most);
      } else if (at_.take("{")) {
        const auto least = at_.number();
        auto most = least;
        if (at_.take(","))
          most = at_.peek() == '}' ? unlimited : at_.number();
        if (!most || !at_.take("}"))
          at_.refuse("has a malformed repetition");
        part = tree_.repeat(part, least.value_or(0), *most);
      } else
        return part;
    }
  }

  /// In a rule, what is ignored may come before a terminal.
  node with_ignored(node terminal) {
    return in_terminal_ ? terminal : tree_.sequence({tree_.reference(ignored), terminal});
  }

  std::string quoted() {
    at_.take("\"");
    std::string out;
    while (!at_.take("\"")) {
      if (at_.at_end() || at_.peek() == '\n')
        at_.refuse("has a string that does not end");
      append_char(out, at_.take("\\") ? at_.escape() : at_.take_character());
    }
    return out;
  }

  node text() {
    auto& regex = g_.regex();
    const auto low = quoted();
    if (at_.take("..")) {
      const auto high = quoted();
      if (count_characters(low) != 1 || count_characters(high) != 1)
        at_.refuse("has a range whose limits are not single characters");
      std::size_t i = 0, k = 0;
      const auto first = next_char(low, i), last = next_char(high, k);
      if (last < first)
        at_.refuse("has a range whose limits are out of order");
      return with_ignored(tree_.terminal(encoded(regex, {{first, last}}, text_encoding::utf8)));
    }
    if (!at_.take("i"))
      return with_ignored(tree_.terminal(regex.literal(low)));
    auto e = empty_text;
    std::vector<char32_t> characters;
    for (std::size_t i = 0; i < low.size();)
      characters.push_back(next_char(low, i));
    for (auto i = characters.size(); i-- > 0;)
      e = regex.concat(encoded(regex, code_points::of(characters[i]).both_cases(), text_encoding::utf8), e);
    return with_ignored(tree_.terminal(e));
  }

  node pattern() {
    at_.take("/");
    const auto begin = at_.position();
    for (bool bracket = false; at_.peek() != '/' || bracket;) {
      if (at_.at_end() || at_.peek() == '\n')
        at_.refuse("has a regular expression that does not end");
      if (at_.peek() == '[')
        bracket = true;
      else if (at_.peek() == ']')
        bracket = false;
      else if (at_.peek() == '\\') {
        at_.take_character();
        if (at_.at_end())
          continue;
      }
      at_.take_character();
    }
    const std::string body(at_.since(begin));
    at_.take("/");
    std::string flags;
    for (; at_.peek() >= 'a' && at_.peek() <= 'z'; at_.take_character())
      flags += at_.peek();
    if (flags.find_first_not_of("isu") != flags.npos)
      at_.refuse("has a regular expression with flags that are not supported: `" + flags + "`");
    return with_ignored(tree_.terminal(whole_pattern(g_.regex(), flags.empty() ? body : "(?" + flags + ")" + body)));
  }

  /// The text of the JSON object that begins here.
  std::string json_value() {
    const auto begin = at_.position();
    if (at_.peek() != '{')
      at_.refuse("must have a JSON object here");
    int depth = 0;
    do {
      if (at_.at_end())
        at_.refuse("has JSON that does not end");
      if (at_.peek() == '"') {
        at_.take_character();
        while (at_.peek() != '"' && !at_.at_end()) {
          at_.take("\\");
          if (!at_.at_end())
            at_.take_character();
        }
      }
      depth += at_.peek() == '{' ? 1 : at_.peek() == '}' ? -1 : 0;
      if (!at_.at_end())
        at_.take_character();
    } while (depth > 0);
    return std::string(at_.since(begin));
  }

  grammar& g_;
  rule_tree tree_;
  text_cursor at_;
  std::vector<std::string> ignored_, terminals_;
  bool in_terminal_ = false;
  int depth_ = 0;
};

} // namespace

rule_id add_lark(grammar& g, std::string_view text) { return lark_parser(g, text).parse(); }

} // namespace troupe::guides
