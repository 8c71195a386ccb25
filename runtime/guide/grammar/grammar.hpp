// Context-free grammars whose terminals are regular expressions, as networks of states: an edge of a state scans a
// regular expression, calls a rule, or does nothing. Terminals match as in the theory: there is no rule of the longest
// match, an ambiguous text has all its readings. A plain value: an automaton works on its own copy.
#pragma once

#include "runtime/guide/regex/lexer.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace troupe::guides {

using rule_id = std::uint32_t;
using rule_state = std::uint32_t;

struct scan_edge {
  expression match;
  rule_state to;
};
struct call_edge {
  rule_id rule;
  rule_state to;
};
/// What leaves a state.
struct rule_edges {
  std::vector<scan_edge> scans;
  std::vector<call_edge> calls;
  std::vector<rule_state> skips;
  bool ends = false; // the rule may end here

  // JSON whose values are told apart (seen_values.hpp):
  bool tells_apart = false;   // a value or name begins that must not have been there in its array or object
  bool is_told_apart = false; // one has ended: not reached if it was there
  bool begins_values = false; // JSON begins
};

class grammar;

/// Makes states when they are first reached, where a rule has too many of them (the properties of an object in any
/// order). Immutable; every state it makes must have a way to the rule's end.
class state_source {
public:
  virtual ~state_source() = default;
  /// The edges of the state with this key. Depends on nothing else.
  virtual rule_edges expand(grammar& g, std::span<const std::uint32_t> key) const = 0;
};

class grammar {
public:
  explicit grammar(const guide_limits& limits) : limits_(limits), lexer_(limits) {}

  // -- construction; throws failure(bad_request) beyond the limits ---------------------

  rule_id add_rule();
  rule_state add_state();
  rule_edges& edges(rule_state s) {
    meter::charge(1);
    return open_[s];
  }
  void set_start(rule_id rule, rule_state s) { rules_[rule] = s; }
  rule_state start(rule_id rule) const { return rules_[rule]; }
  void set_root(rule_id rule) { root_ = rule; }
  /// Some states are about values that are told apart.
  void tell_values_apart() { tells_values_apart_ = true; }
  std::uint32_t add_source(std::shared_ptr<const state_source> source);
  rule_state lazy_state(std::uint32_t source, std::span<const std::uint32_t> key);
  /// Removes what cannot end. To be called once, before the grammar is used. Throws failure(bad_request) if nothing
  /// matches.
  void finish();

  guides::lexer& lexer() { return lexer_; }
  expressions& regex() { return lexer_.regex(); }
  const guide_limits& limits() const { return limits_; }

  // -- use ---------------------------------------------------------------------------

  rule_id root() const { return root_; }
  bool tells_values_apart() const { return tells_values_apart_; }

  struct state {
    lexer_state scanner = dead_lexer; // its tags are indices of targets
    std::uint32_t targets = 0, calls = 0, skips = 0;
    std::uint32_t call_count = 0, skip_count = 0;
    std::uint32_t source = none; // of a lazy state that has not been made
    std::uint32_t key = 0, key_count = 0;
    bool ends = false;
    bool returns = false;                                                   // ends, and nothing else
    bool tells_apart = false, is_told_apart = false, begins_values = false; // as in rule_edges
  };
  const state& at(rule_state s) {
    if (states_[s].source != none)
      make(s);
    return states_[s];
  }
  /// A state that `at` has been called for, or that was there when the grammar was finished; else nothing is known yet.
  const state& made(rule_state s) const { return states_[s]; }
  bool is_made(rule_state s) const { return states_[s].source == none; }
  rule_state target(const state& s, std::uint32_t tag) const { return targets_[s.targets + tag]; }
  std::span<const call_edge> calls(const state& s) const { return {calls_.data() + s.calls, s.call_count}; }
  std::span<const rule_state> skips(const state& s) const { return {skips_.data() + s.skips, s.skip_count}; }

  std::size_t size() const { return states_.size(); }

private:
  static constexpr std::uint32_t none = 0xFFFFFFFF;
  void make(rule_state s);
  void define(rule_state s, const rule_edges& edges);
  std::vector<bool> productive() const;

  guide_limits limits_;
  guides::lexer lexer_;
  std::vector<rule_state> rules_; // their start
  rule_id root_ = 0;
  std::deque<rule_edges> open_; // until finish(); references stay valid
  bool finished_ = false;
  bool tells_values_apart_ = false;
  std::vector<state> states_;
  std::vector<rule_state> targets_, skips_;
  std::vector<call_edge> calls_;
  std::vector<std::shared_ptr<const state_source>> sources_;
  std::vector<std::uint32_t> keys_;
  intern_table lazy_;
};

} // namespace troupe::guides
