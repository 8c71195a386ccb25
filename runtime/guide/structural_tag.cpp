#include "runtime/guide/structural_tag.hpp"

#include "runtime/guide/grammar/grammar_text.hpp"
#include "runtime/guide/regex/pattern.hpp"
#include "runtime/guide/schema/schema_grammar.hpp"
#include "runtime/support/json/json_digits.hpp"
#include "runtime/support/json/json_reader.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace troupe::guides {

namespace {

using json::reader;

class tag_builder {
public:
  /// `replaced`: the enforced parts that are so, by number.
  tag_builder(grammar& g, const std::vector<bool>& replaced)
    : g_(g), regex_(g.regex()), any_(any_characters(g.regex(), text_encoding::utf8)), replaced_(replaced) {}

  rule_id build(const reader& tag) {
    const auto rule = g_.add_rule();
    const auto from = g_.add_state(), to = g_.add_state();
    g_.set_start(rule, from);
    g_.edges(to).ends = true;
    if (tag.has("format"))
      format(tag.at("format"), from, to);
    else
      structures(tag, from, to);
    return rule;
  }

  /// The rule of one format alone.
  rule_id build_format(const reader& f) {
    const auto rule = g_.add_rule();
    const auto from = g_.add_state(), to = g_.add_state();
    g_.set_start(rule, from);
    g_.edges(to).ends = true;
    format(f, from, to);
    return rule;
  }

private:
  /// A tag: how it begins, and what leads from there to its end.
  struct branch {
    std::string begin;
    std::function<void(rule_state, rule_state)> rest;
  };

  void scan(rule_state from, expression e, rule_state to) { g_.edges(from).scans.push_back({e, to}); }

  expression containing(const std::vector<std::string>& texts, expression behind) {
    return regex_.concat({any_, regex_.literals(texts), behind});
  }

  /// Any text but those that begin with one of these, behind white space.
  expression not_beginning(const std::vector<std::string>& texts) {
    const auto space = whole_pattern(regex_, "[ \\t\\r\\n]*");
    return regex_.difference(any_, regex_.concat({space, regex_.literals(texts), any_}));
  }

  static std::vector<std::string> strings(const reader& list) {
    std::vector<std::string> all;
    for (const auto& item : list.items())
      all.emplace_back(item.string());
    return all;
  }

  void json_content(const reader& schema, bool closed, rule_state from, rule_state to) {
    const auto rule = add_schema(g_, json::minified(schema.get()), {.closed = closed}, g_.limits());
    g_.edges(from).calls.push_back({rule, to});
  }

  void enforced(const reader& f, rule_state from, rule_state to) {
    const auto part = static_cast<std::size_t>(f.at("part").integer(0, 1 << 20));
    if (part >= replaced_.size())
      f.at("type").refuse("names a format that is not supported");
    format(f.at(replaced_[part] ? "otherwise" : "content"), from, to);
  }

  // vLLM's form: {structures: [{begin, schema, end}], triggers}
  void structures(const reader& tag, rule_state from, rule_state to) {
    std::vector<branch> branches;
    for (const auto& s : tag.at("structures").items())
      branches.push_back({std::string(s.at("begin").string()), [this, s](rule_state a, rule_state b) {
                            const auto end = g_.add_state();
                            json_content(s.at("schema"), false, a, end);
                            scan(end, regex_.literal(s.at("end").string()), b);
                          }});
    triggered(tag, strings(tag.at("triggers")), branches, false, false, from, to);
  }

  void triggered(const reader& where, const std::vector<std::string>& triggers, const std::vector<branch>& branches,
                 bool at_least_one, bool only_one, rule_state from, rule_state to) {
    if (triggers.empty() || std::ranges::any_of(triggers, &std::string::empty))
      where.refuse("must have triggers, none of them empty");
    // Text up to and with the first trigger, and text without any.
    const auto again = regex_.concat(containing(triggers, empty_text),
                                     encoded(regex_, code_points::all(), text_encoding::utf8));
    const auto second = regex_.concat(again, any_);
    const auto without = regex_.difference(any_, containing(triggers, any_));
    const auto behind = only_one ? to : g_.add_state(); // a tag
    std::vector<bool> used(branches.size());
    for (const auto& trigger : triggers) {
      meter::charge(1 + 2 * branches.size());
      const auto inside = g_.add_state();
      const auto first = regex_.difference(regex_.concat(any_, regex_.literal(trigger)), second);
      scan(from, first, inside);
      if (!only_one)
        scan(behind, first, inside);
      for (std::size_t i = 0; i < branches.size(); ++i)
        if (branches[i].begin.starts_with(trigger)) {
          const auto content = g_.add_state();
          scan(inside, regex_.literal(branches[i].begin.substr(trigger.size())), content);
          branches[i].rest(content, behind);
          used[i] = true;
        }
    }
    for (std::size_t i = 0; i < branches.size(); ++i)
      if (!used[i])
        where.refuse("has a tag whose beginning no trigger begins: `" + branches[i].begin + "`");
    if (!at_least_one)
      scan(from, without, to);
    if (!only_one)
      scan(behind, without, to);
  }

  branch tag_of(const reader& tag) {
    return {std::string(tag.at("begin").string()), [this, tag](rule_state a, rule_state b) {
              const auto ends = tag.at("end").get().is_array() ? strings(tag.at("end"))
                                                               : std::vector{std::string(tag.at("end").string())};
              const auto content = tag.at("content");
              if (content.at("type").string() == "any_text") { // up to its first end
                if (std::ranges::any_of(ends, &std::string::empty))
                  tag.refuse("must have an end, because its content is free");
                const auto one = encoded(regex_, code_points::all(), text_encoding::utf8);
                auto text = regex_.difference(containing(ends, empty_text),
                                              regex_.concat({containing(ends, empty_text), one, any_}));
                if (content.has("unless"))
                  text = regex_.difference(
                    text, regex_.concat({whole_pattern(regex_, content.at("unless").string()), regex_.literals(ends)}));
                scan(a, text, b);
                return;
              }
              const auto end = g_.add_state();
              format(content, a, end);
              scan(end, regex_.literals(ends), b);
            }};
  }

  void format(const reader& f, rule_state from, rule_state to) {
    if (++depth_ > 100)
      f.refuse("is nested deeper than 100");
    const std::string type(f.at("type").string());
    if (type == "const_string")
      scan(from, regex_.literal(f.at("value").string()), to);
    else if (type == "json_schema")
      json_content(f.at("json_schema"), f.boolean("closed", false), from, to);
    else if (type == "enforced")
      enforced(f, from, to);
    else if (type == "regex")
      scan(from, whole_pattern(regex_, f.at("pattern").string()), to);
    else if (type == "grammar")
      g_.edges(from).calls.push_back({add_grammar(g_, f.at("grammar").string()), to});
    else if (type == "any_text")
      scan(from, f.has("unless_begins") ? not_beginning(strings(f.at("unless_begins"))) : any_, to);
    else if (type == "sequence") {
      const auto elements = f.at("elements").items();
      for (std::size_t i = 0; i < elements.size(); ++i) {
        const auto next = g_.add_state();
        format(elements[i], from, next);
        from = next;
      }
      g_.edges(from).skips.push_back(to);
    } else if (type == "or") {
      for (const auto& element : f.at("elements").items())
        format(element, from, to);
    } else if (type == "tag") {
      const auto t = tag_of(f);
      const auto content = g_.add_state();
      scan(from, regex_.literal(t.begin), content);
      t.rest(content, to);
    } else if (type == "triggered_tags") {
      std::vector<branch> branches;
      for (const auto& t : f.at("tags").items())
        branches.push_back(tag_of(t));
      triggered(f, strings(f.at("triggers")), branches, f.boolean("at_least_one", false),
                f.boolean("stop_after_first", false), from, to);
    } else if (type == "tags_with_separator")
      separated(f, from, to);
    else
      f.at("type").refuse("names a format that is not supported");
    --depth_;
  }

  void separated(const reader& f, rule_state from, rule_state to) {
    const auto behind = g_.add_state(), before = g_.add_state();
    for (const auto& tag : f.at("tags").items()) {
      const auto t = tag_of(tag);
      const auto content = g_.add_state();
      scan(before, regex_.literal(t.begin), content);
      t.rest(content, behind);
    }
    g_.edges(from).skips.push_back(before);
    g_.edges(behind).skips.push_back(to);
    if (!f.boolean("at_least_one", false))
      g_.edges(from).skips.push_back(to);
    if (!f.boolean("stop_after_first", false))
      scan(behind, regex_.literal(f.at("separator").string()), before);
  }

  grammar& g_;
  expressions& regex_;
  expression any_;
  const std::vector<bool>& replaced_;
  int depth_ = 0;
};

/// Finds the enforced parts of a format.
void find_parts(const reader& f, std::vector<std::optional<reader>>& parts, int depth = 0) {
  if (depth > 100)
    return; // which is refused where it is built
  const auto all = [&](const char* key) {
    if (f.has(key) && f.at(key).get().is_array())
      for (const auto& one : f.at(key).items())
        if (one.get().is_object())
          find_parts(one, parts, depth + 1);
  };
  if (f.has("part") && f.has("content")) {
    if (const auto part = f.at("part").integer(0, 1 << 20); static_cast<std::size_t>(part) < parts.size())
      parts[static_cast<std::size_t>(part)] = f;
    return;
  }
  all("elements");
  all("tags");
  if (f.has("content") && f.at("content").get().is_object())
    find_parts(f.at("content"), parts, depth + 1);
}

} // namespace

grammar compile_structural_tag(const guide_source& source, const guide_limits& limits,
                               void (*finish)(grammar&, const guide_source&)) {
  const auto parsed = json::document::parse(source.text, "the structural tag", errc::bad_request);
  static const json::wording wording = [] {
    auto w = json::body_wording;
    w.names_param = false;
    return w;
  }();
  const reader tag(parsed, wording);
  const auto count = source.parts.size();
  std::vector<bool> replaced(count);
  const auto whole = [&](grammar& g) {
    g.set_root(tag_builder(g, replaced).build(tag));
    finish(g, source);
  };
  if (count == 0) {
    grammar g(limits);
    whole(g);
    return g;
  }
  // Four times: all parts, each by itself, those that can be compiled, and none. Each may take a quarter of the work.
  auto share = limits;
  share.work = limits.work / 4;
  std::optional<grammar> made;
  const auto fault_of = [&](const guide_limits& most, auto build) -> std::optional<std::string> {
    meter cost({most.compiling, most.work});
    try {
      within(cost, [&] {
        made.emplace(most);
        build(*made);
      });
      return std::nullopt;
    } catch (const failure& f) {
      made.reset();
      if (const auto* outer = meter::current(); outer && outer->is_spent())
        throw; // which says nothing about the part
      return f.what();
    }
  };
  if (!fault_of(share, whole))
    return *std::move(made);
  std::vector<std::optional<reader>> parts(count);
  if (tag.has("format"))
    find_parts(tag.at("format"), parts);
  const auto replace = [&](std::size_t i, const std::string& why) {
    if (!parts[i] || replaced[i])
      return;
    if (!parts[i]->has("otherwise"))
      refuse_field(source.parts[i], "cannot be enforced: " + why);
    replaced[i] = true;
  };
  auto one = share;
  one.work = std::max<std::uint64_t>(share.work / count, 200'000);
  one.expressions = std::max<std::size_t>(limits.expressions / count, 4000);
  one.rules = std::max<std::size_t>(limits.rules / count, 400);
  for (std::size_t i = 0; i < count; ++i)
    if (parts[i])
      if (const auto why = fault_of(one, [&](grammar& g) {
            const auto part = parts[i]->at("content");
            g.set_root(tag_builder(g, replaced).build_format(part));
            g.finish();
          }))
        replace(i, *why);
  const auto why = fault_of(share, whole);
  if (!why)
    return *std::move(made);
  for (std::size_t i = 0; i < count; ++i) // together they are too complex
    replace(i, *why);
  grammar g(limits);
  whole(g);
  return g;
}

} // namespace troupe::guides
