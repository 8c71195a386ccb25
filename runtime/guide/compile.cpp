#include "runtime/guide/compile.hpp"

#include "runtime/guide/grammar/grammar_text.hpp"
#include "runtime/guide/regex/pattern.hpp"
#include "runtime/guide/schema/schema_grammar.hpp"
#include "runtime/guide/structural_tag.hpp"
#include "runtime/support/utf8.hpp"

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

void check_size(const guide_source& source, const guide_limits& limits) {
  auto size = source.text.size();
  for (const auto& c : source.choices)
    size += c.size();
  if (size > limits.source)
    throw failure(errc::bad_request, "the guide is larger than " + std::to_string(limits.source) + " bytes");
}

} // namespace

grammar compile_grammar(const guide_source& source, const guide_limits& limits) {
  check_size(source, limits);
  grammar g(limits);
  switch (source.what) {
    case guide_source::kind::regex: set_terminal(g, whole_pattern(g.regex(), source.text)); break;
    case guide_source::kind::choice:
      for (const auto& c : source.choices)
        if (!is_utf8(c))
          throw failure(errc::bad_request, "a choice is not UTF-8");
      set_terminal(g, g.regex().literals(source.choices));
      break;
    case guide_source::kind::json_object:
    case guide_source::kind::json_schema: {
      const bool any = source.what == guide_source::kind::json_object;
      g.set_root(add_schema(g, any ? R"({"type":"object"})" : source.text, {source.any_order, source.compact}, limits));
      break;
    }
    case guide_source::kind::grammar: g.set_root(add_grammar(g, source.text)); break;
    case guide_source::kind::structural_tag: g.set_root(add_structural_tag(g, source.text)); break;
  }
  g.finish();
  return g;
}

} // namespace troupe::guides
