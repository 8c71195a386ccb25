#include "runtime/guide/regex/pattern.hpp"

#include "runtime/guide/regex/pattern_parser.hpp"

namespace troupe::guides {

namespace {

using kind = pattern_node::kind;

/// Whether something stands before a place in the text.
enum class before : std::uint8_t { nothing, something, either };

/// Builds from the end of the pattern to its start, knowing what follows each part: then anchors and lookaheads are
/// intersections with what follows.
class builder {
public:
  builder(expressions& regex, text_encoding how) : regex_(regex), how_(how), any_(any_characters(regex, how)) {}

  expression any() const { return any_; }

  expression build(const pattern_node& n, expression rest, before left) {
    if (n.pure)
      return regex_.concat(pure(n), rest);
    switch (n.what) {
      case kind::begin:
        if (left == before::either)
          refuse("`^` behind an optional part");
        return left == before::nothing ? rest : no_text;
      case kind::end: return regex_.intersection(rest, empty_text);
      case kind::ahead: return regex_.intersection(rest, build(n.parts.front(), any_, left));
      case kind::not_ahead: return regex_.difference(rest, build(n.parts.front(), any_, left));
      case kind::choice: {
        std::vector<expression> parts;
        for (const auto& p : n.parts)
          parts.push_back(build(p, rest, left));
        return regex_.alternation(std::move(parts));
      }
      case kind::repeat:
        if (n.least == 0 && n.most == 1)
          return regex_.alternation(build(n.parts.front(), rest, left), rest);
        if (n.least == 1 && n.most == 1)
          return build(n.parts.front(), rest, left);
        refuse("an anchor or lookahead inside a repetition");
      case kind::sequence: {
        std::vector<before> lefts;
        for (const auto& p : n.parts) {
          lefts.push_back(left);
          left = after(p, left);
        }
        for (auto i = n.parts.size(); i-- > 0;)
          rest = build(n.parts[i], rest, lefts[i]);
        return rest;
      }
      case kind::characters: break;
    }
    return regex_.concat(pure(n), rest);
  }

  static bool has_begin(const pattern_node& n) {
    if (n.what == kind::begin)
      return true;
    for (const auto& p : n.parts)
      if (!p.pure && has_begin(p))
        return true;
    return false;
  }

private:
  [[noreturn]] static void refuse(const std::string& what) {
    throw failure(errc::bad_request, "the regular expression has " + what + ", which is not supported");
  }

  /// What stands before the part behind `p`.
  before after(const pattern_node& p, before left) {
    if (left == before::something || p.what == kind::begin || p.what == kind::end || p.what == kind::ahead ||
        p.what == kind::not_ahead)
      return left;
    if (p.pure) {
      const auto e = pure(p);
      return e == empty_text ? left : regex_.nullable(e) ? before::either : before::something;
    }
    if (p.what == kind::sequence) {
      for (const auto& q : p.parts)
        left = after(q, left);
      return left;
    }
    if (p.what == kind::repeat && p.least > 0)
      return after(p.parts.front(), left);
    bool same = true, something = p.what == kind::choice;
    for (const auto& q : p.parts) {
      const auto now = after(q, left);
      same &= now == left;
      something &= now == before::something;
    }
    return something ? before::something : same ? left : before::either;
  }

  expression pure(const pattern_node& n) {
    switch (n.what) {
      case kind::characters: return encoded(regex_, n.set, how_);
      case kind::repeat: return regex_.repeat(pure(n.parts.front()), n.least, n.most);
      case kind::choice: {
        std::vector<expression> parts;
        for (const auto& p : n.parts)
          parts.push_back(pure(p));
        return regex_.alternation(std::move(parts));
      }
      default: {
        auto result = empty_text;
        for (auto i = n.parts.size(); i-- > 0;)
          result = regex_.concat(pure(n.parts[i]), result);
        return result;
      }
    }
  }

  expressions& regex_;
  text_encoding how_;
  expression any_;
};

} // namespace

expression whole_pattern(expressions& regex, std::string_view pattern) {
  const auto tree = parse_pattern(pattern, {.ecma = false});
  return builder(regex, text_encoding::utf8).build(tree, empty_text, before::nothing);
}

expression whole_pattern_in_json_string(expressions& regex, std::string_view pattern) {
  const auto tree = parse_pattern(pattern, {});
  return builder(regex, text_encoding::json_string).build(tree, empty_text, before::nothing);
}

expression pattern_in_json_string(expressions& regex, std::string_view pattern) {
  const auto tree = parse_pattern(pattern, {});
  builder b(regex, text_encoding::json_string);
  if (!builder::has_begin(tree))
    return regex.concat(b.any(), b.build(tree, b.any(), before::something));
  const auto further = b.build(tree, b.any(), before::something);
  const auto first = b.build(tree, b.any(), before::nothing);
  if (further == no_text)
    return first;
  return regex.alternation(
    first, regex.concat({encoded(regex, code_points::all(), text_encoding::json_string), b.any(), further}));
}

} // namespace troupe::guides
