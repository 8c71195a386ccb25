#include "runtime/guide/compile.hpp"

#include "runtime/guide/grammar/grammar_text.hpp"
#include "runtime/guide/regex/code_points.hpp"
#include "runtime/guide/regex/pattern.hpp"
#include "runtime/guide/schema/schema_grammar.hpp"
#include "runtime/guide/structural_tag.hpp"
#include "runtime/support/text/utf8.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace troupe::guides {

namespace {

/// The grammar of one regular expression.
void set_terminal(grammar& g, expression e) {
  const auto root = g.add_rule();
  const auto first = g.add_state(), last = g.add_state();
  g.edges(first).scans.push_back({e, last});
  g.edges(last).ends = true;
  g.set_start(root, first);
  g.set_root(root);
}

constexpr std::size_t most_excluded = 1024; // bytes of banned texts that patterns are made to avoid

/// What a pattern matches without any of the banned texts. Masks keep those out of every answer; but an answer that has
/// begun with what only they complete could not go on.
expression without(const std::vector<std::string>& banned, expressions& regex, expression e) {
  std::size_t bytes = 0;
  for (const auto& text : banned)
    bytes += text.size();
  if (banned.empty() || bytes > most_excluded)
    return e;
  const auto any = any_characters(regex, text_encoding::utf8);
  return regex.difference(e, regex.concat({any, regex.literals(banned), any}));
}

expression allowed_pattern(expressions& regex, const guide_source& source) {
  const auto all = whole_pattern(regex, source.text), allowed = without(source.banned, regex, all);
  if (!regex.alive(allowed) && regex.alive(all))
    throw failure(errc::bad_request, "each text that matches contains one that this server's policy bans");
  return allowed;
}

std::vector<std::string> allowed_choices(const guide_source& source) {
  std::vector<std::string> allowed;
  for (const auto& choice : source.choices) {
    if (!is_utf8(choice))
      throw failure(errc::bad_request, "a choice is not UTF-8");
    if (std::ranges::none_of(source.banned, [&](const auto& text) { return choice.find(text) != choice.npos; }))
      allowed.push_back(choice);
  }
  if (allowed.empty() && !source.choices.empty())
    throw failure(errc::bad_request, "each of the choices contains a text that this server's policy bans");
  return allowed;
}

/// Puts the part ahead of the root that the text may begin with.
void add_preface(grammar& g, const guide_source& source) {
  auto& regex = g.regex();
  const auto any = any_characters(regex, text_encoding::utf8);
  const auto one = encoded(regex, code_points::all(), text_encoding::utf8);
  const auto space = whole_pattern(regex, "[ \\t\\r\\n]{0,8}");
  const auto ended = regex.concat(any, regex.literal(source.preface_end));
  const auto up_to_end = regex.difference(ended, regex.concat({ended, one, any})); // the first
  const auto root = g.add_rule();
  const auto first = g.add_state(), behind = g.add_state(), last = g.add_state();
  g.edges(first).scans.push_back(
    {regex.concat({space, regex.literal(source.preface_begin), up_to_end, space}), behind});
  g.edges(first).skips.push_back(behind);
  g.edges(behind).calls.push_back({g.root(), last});
  g.edges(last).ends = true;
  g.set_start(root, first);
  g.set_root(root);
}

void check_size(const guide_source& source, const guide_limits& limits) {
  if (size_of(source) > limits.source)
    throw failure(errc::bad_request, "the guide is larger than " + std::to_string(limits.source) + " bytes");
}

/// What all kinds of guides have in common, once their own rules are there.
void complete(grammar& g, const guide_source& source) {
  if (!source.preface_begin.empty() && source.what != guide_source::kind::anything)
    add_preface(g, source);
  g.finish();
}

} // namespace

grammar compile_grammar(const guide_source& source, const guide_limits& limits) {
  check_size(source, limits);
  if (source.what == guide_source::kind::structural_tag)
    return compile_structural_tag(source, limits, complete);
  grammar g(limits);
  switch (source.what) {
    case guide_source::kind::regex: set_terminal(g, allowed_pattern(g.regex(), source)); break;
    case guide_source::kind::choice: set_terminal(g, g.regex().literals(allowed_choices(source))); break;
    case guide_source::kind::json_object:
    case guide_source::kind::json_schema: {
      const bool any = source.what == guide_source::kind::json_object;
      const json_style style{source.any_order, source.compact, source.closed, any};
      g.set_root(add_schema(g, any ? R"({"type":"object"})" : source.text, style, limits));
      break;
    }
    case guide_source::kind::grammar: g.set_root(add_grammar(g, source.text)); break;
    case guide_source::kind::anything: set_terminal(g, any_characters(g.regex(), text_encoding::utf8)); break;
    case guide_source::kind::structural_tag: break;
  }
  complete(g, source);
  return g;
}

} // namespace troupe::guides
