#include "runtime/guide/grammar/rule_tree.hpp"

namespace troupe::guides {

namespace {

constexpr int deepest = 200;

[[noreturn]] void refuse(const std::string& what) { throw failure(errc::bad_request, "the grammar " + what); }

} // namespace

// -- construction -----------------------------------------------------------------

rule_tree::node_id rule_tree::add(node n) {
  if (nodes_.size() >= g_.limits().rules)
    too_large("parts of rules", g_.limits().rules);
  nodes_.push_back(std::move(n));
  return static_cast<node_id>(nodes_.size() - 1);
}

rule_tree::node_id rule_tree::terminal(expression e) { return add({.what = kind::terminal, .match = e}); }
rule_tree::node_id rule_tree::call(rule_id rule) { return add({.what = kind::call, .called = rule}); }
rule_tree::node_id rule_tree::sequence(std::vector<node_id> parts) {
  return parts.size() == 1 ? parts.front() : add({.what = kind::sequence, .parts = std::move(parts)});
}
rule_tree::node_id rule_tree::choice(std::vector<node_id> parts) {
  return parts.size() == 1 ? parts.front() : add({.what = kind::choice, .parts = std::move(parts)});
}
rule_tree::node_id rule_tree::repeat(node_id part, std::uint32_t least, std::uint32_t most) {
  if (most < least)
    refuse("has a repetition whose limits are out of order");
  return add({.what = kind::repeat, .parts = {part}, .least = least, .most = most});
}
rule_tree::node_id rule_tree::reference(const std::string& name) {
  rules_.try_emplace(name);
  return add({.what = kind::reference, .rule = name});
}

void rule_tree::define(const std::string& name, node_id body) {
  auto& r = rules_[name];
  if (r.body != none)
    refuse("defines `" + name + "` twice");
  r.body = body;
}

// -- regular parts ------------------------------------------------------------------

bool rule_tree::rule_is_regular(const std::string& name, int depth) {
  auto& r = rules_[name];
  if (r.body == none)
    refuse("refers to `" + name + "`, which it does not define");
  if (r.is == regularity::under_way)
    return false; // calls itself
  if (r.is == regularity::unknown) {
    r.is = regularity::under_way;
    const bool regular = is_regular(r.body, depth + 1);
    if (regular)
      r.match = expression_of(r.body);
    r.is = regular ? regularity::regular : regularity::recursive;
  }
  return r.is == regularity::regular;
}

bool rule_tree::is_regular(node_id n, int depth) {
  if (depth > deepest)
    refuse("is nested deeper than " + std::to_string(deepest));
  meter::charge(2);
  auto& at = nodes_[n]; // nodes do not move while rules are looked at
  if (at.what == kind::reference)
    return rule_is_regular(at.rule, depth);
  if (at.what == kind::call)
    return false;
  if (at.is == regularity::unknown) {
    bool all = true; // visits all parts, so that all rules are known afterwards
    for (const auto p : at.parts)
      all = is_regular(p, depth + 1) && all;
    at.is = all ? regularity::regular : regularity::recursive;
  }
  return at.is == regularity::regular;
}

expression rule_tree::expression_of(node_id n) {
  meter::charge(2);
  auto& at = nodes_[n];
  if (at.what == kind::reference)
    return rules_[at.rule].match;
  if (at.match == unknown)
    at.match = made_of(at);
  return at.match;
}

expression rule_tree::made_of(const node& n) {
  auto& regex = g_.regex();
  switch (n.what) {
    case kind::sequence: {
      auto result = empty_text;
      for (auto i = n.parts.size(); i-- > 0;)
        result = regex.concat(expression_of(n.parts[i]), result);
      return result;
    }
    case kind::choice: {
      std::vector<expression> parts;
      for (const auto p : n.parts)
        parts.push_back(expression_of(p));
      return regex.alternation(std::move(parts));
    }
    case kind::repeat: return regex.repeat(expression_of(n.parts.front()), n.least, n.most);
    default: return no_text;
  }
}

/// Divides a choice: joins the ways that are regular, and lists the rest.
void rule_tree::divide(node& choice) {
  std::vector<expression> ways;
  for (const auto p : choice.parts)
    if (is_regular(p, 0))
      ways.push_back(expression_of(p));
    else
      choice.rest.push_back(p);
  choice.match = g_.regex().alternation(std::move(ways));
}

expression rule_tree::regular(const std::string& name) {
  if (!rule_is_regular(name, 0))
    refuse("has a terminal that is recursive: `" + name + "`");
  return rules_[name].match;
}

// -- into a grammar -------------------------------------------------------------------

rule_id rule_tree::emitted(const std::string& name) {
  auto& r = rules_[name];
  if (r.emitted == none) {
    r.emitted = g_.add_rule();
    todo_.push_back(name);
  }
  return r.emitted;
}

rule_id rule_tree::emit(const std::string& root) {
  if (!defined(root))
    refuse("does not define `" + root + "`, where it starts");
  for (auto& [name, r] : rules_) // all of them: references to nowhere are refused even where they are not reached
    rule_is_regular(name, 0);
  const auto result = emitted(root);
  while (!todo_.empty()) {
    const auto name = todo_.back();
    todo_.pop_back();
    const auto from = g_.add_state(), to = g_.add_state();
    g_.edges(to).ends = true;
    g_.set_start(rules_[name].emitted, from);
    emit(rules_[name].body, from, to);
  }
  return result;
}

void rule_tree::emit(node_id n, rule_state from, rule_state to) {
  if (++depth_ > deepest)
    refuse("is nested deeper than " + std::to_string(deepest));
  meter::charge(4);
  auto& at = nodes_[n];
  if (is_regular(n, 0))
    g_.edges(from).scans.push_back({expression_of(n), to});
  else
    switch (at.what) {
      case kind::terminal: break;
      case kind::reference: g_.edges(from).calls.push_back({emitted(at.rule), to}); break;
      case kind::call: g_.edges(from).calls.push_back({at.called, to}); break;
      case kind::sequence:
        for (std::size_t i = 0; i < at.parts.size(); ++i) {
          const auto next = i + 1 == at.parts.size() ? to : g_.add_state();
          emit(at.parts[i], from, next);
          from = next;
        }
        break;
      case kind::choice:
        if (at.match == unknown)
          divide(at);
        if (at.match != no_text)
          g_.edges(from).scans.push_back({at.match, to});
        for (const auto p : at.rest)
          emit(p, from, to);
        break;
      case kind::repeat: {
        const auto step = [&] {
          const auto next = g_.add_state();
          emit(at.parts.front(), from, next);
          from = next;
        };
        for (std::uint32_t i = 0; i < at.least; ++i)
          step();
        if (at.most == unlimited) {
          const auto loop = g_.add_state();
          g_.edges(from).skips.push_back(loop);
          emit(at.parts.front(), loop, loop);
          from = loop;
        } else
          for (auto i = at.least; i < at.most; ++i) {
            g_.edges(from).skips.push_back(to);
            step();
          }
        g_.edges(from).skips.push_back(to);
        break;
      }
    }
  --depth_;
}

} // namespace troupe::guides
